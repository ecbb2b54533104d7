variable "google_project" {
  type    = string
  default = ""
}

variable "google_zone" {
  type    = string
  default = "europe-west1-b"
}

variable "google_source" {
  type    = string
  default = "debian-12"
}

source "googlecompute" "lifeboat" {
  project_id          = var.google_project
  zone                = var.google_zone
  source_image_family = var.google_source
  machine_type        = "e2-small"
  ssh_username        = "packer"
  image_family        = var.name
  image_name          = "${var.name}-${local.stamp}"
}

build {
  name    = "google"
  sources = ["source.googlecompute.lifeboat"]

  provisioner "file" {
    source      = var.deb
    destination = "/tmp/lifeboat.deb"
  }

  provisioner "shell" {
    script           = "${path.root}/install.sh"
    environment_vars = ["COORDINATORS=${var.coordinators}", "PIN=${var.pin}", "PROVIDER=gce"]
    execute_command  = "chmod +x {{ .Path }}; {{ .Vars }} sudo -E {{ .Path }}"
  }
}
