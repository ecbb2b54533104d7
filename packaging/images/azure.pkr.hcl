variable "azure_subscription" {
  type    = string
  default = ""
}

variable "azure_group" {
  type        = string
  description = "The resource group that the image goes to."
  default     = ""
}

variable "azure_location" {
  type    = string
  default = "West Europe"
}

source "azure-arm" "lifeboat" {
  use_azure_cli_auth                = true
  subscription_id                   = var.azure_subscription
  managed_image_resource_group_name = var.azure_group
  managed_image_name                = "${var.name}-${local.stamp}"
  location                          = var.azure_location
  os_type                           = "Linux"
  image_publisher                   = "Debian"
  image_offer                       = "debian-12"
  image_sku                         = "12-gen2"
  vm_size                           = "Standard_B1ms"
}

build {
  name    = "azure"
  sources = ["source.azure-arm.lifeboat"]

  provisioner "file" {
    source      = var.deb
    destination = "/tmp/lifeboat.deb"
  }

  provisioner "shell" {
    script           = "${path.root}/install.sh"
    environment_vars = ["COORDINATORS=${var.coordinators}", "PIN=${var.pin}", "PROVIDER=azure"]
    execute_command  = "chmod +x {{ .Path }}; {{ .Vars }} sudo -E {{ .Path }}"
  }

  # Azure's own agent forgets the build's user and keys; nothing may run after it.
  provisioner "shell" {
    inline          = ["/usr/sbin/waagent -force -deprovision+user && sync"]
    execute_command = "chmod +x {{ .Path }}; {{ .Vars }} sudo -E sh '{{ .Path }}'"
  }
}
