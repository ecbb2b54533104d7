# What is the same for all clouds. docs/images.md tells how these files are used.

variable "deb" {
  type        = string
  description = "The package, from make packages: bin/packages/lifeboat_VERSION_amd64.deb."
}

variable "coordinators" {
  type        = string
  description = "Where the coordinators are: 10.0.0.1:7411,10.0.0.2:7411. Empty: user-data writes agent.yaml."
  default     = ""
}

variable "pin" {
  type        = string
  description = "Whose fleet the instances believe: lifeboat tls pin ca.pem. It is no secret."
  default     = ""
}

variable "name" {
  type    = string
  default = "lifeboat-node"
}

locals {
  stamp = formatdate("YYYYMMDD-hhmm", timestamp())
}
