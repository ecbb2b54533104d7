# packer init fetches these. (Packer before 1.7 brings them along: leave this file out there.)

packer {
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = "~> 1.3"
    }
    azure = {
      source  = "github.com/hashicorp/azure"
      version = "~> 2.1"
    }
    googlecompute = {
      source  = "github.com/hashicorp/googlecompute"
      version = "~> 1.1"
    }
  }
}
