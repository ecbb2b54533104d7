variable "aws_region" {
  type    = string
  default = "eu-west-1"
}

variable "aws_source" {
  type        = string
  description = "The name of the image to start from."
  default     = "debian-12-amd64-*"
}

variable "aws_owner" {
  type        = string
  description = "Whose image that is; Debian's is 136693071363 (wiki.debian.org/Cloud/AmazonEC2Image)."
  default     = "136693071363"
}

source "amazon-ebs" "lifeboat" {
  region        = var.aws_region
  instance_type = "t3.small"
  ssh_username  = "admin"
  ami_name      = "${var.name}-${local.stamp}"

  source_ami_filter {
    filters = {
      name                = var.aws_source
      virtualization-type = "hvm"
    }
    owners      = [var.aws_owner]
    most_recent = true
  }
}

build {
  name    = "ec2"
  sources = ["source.amazon-ebs.lifeboat"]

  provisioner "file" {
    source      = var.deb
    destination = "/tmp/lifeboat.deb"
  }

  provisioner "shell" {
    script           = "${path.root}/install.sh"
    environment_vars = ["COORDINATORS=${var.coordinators}", "PIN=${var.pin}", "PROVIDER=ec2"]
    execute_command  = "chmod +x {{ .Path }}; {{ .Vars }} sudo -E {{ .Path }}"
  }
}
