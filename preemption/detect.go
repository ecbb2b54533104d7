package preemption

import (
	"os"
	"path/filepath"
	"strings"
)

// azureChassis is the asset tag of every Azure machine. The vendor alone would match any Hyper-V guest.
// https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events and cloud-init's Azure data source.
const azureChassis = "7783-7084-3265-9085-8269-3286-77"

// Detect names the cloud that this machine runs in by its firmware: "ec2", "gce", "azure", or "" for none of them. root is
// "/", or a tree to look at in its place. It asks no network: outside of a cloud, anybody may answer a packet to
// 169.254.169.254.
func Detect(root string) string {
	dmi := func(name string) string {
		data, err := os.ReadFile(filepath.Join(root, "sys/class/dmi/id", name))
		if err != nil {
			return "" // no firmware tables, or (product_uuid) no right to read them
		}
		return strings.TrimSpace(string(data))
	}
	switch vendor := dmi("sys_vendor"); {
	case vendor == "Amazon EC2":
		return "ec2"
	case vendor == "Xen" && strings.HasPrefix(strings.ToLower(dmi("product_uuid")), "ec2"):
		return "ec2" // instance types from before Nitro; a random UUID may start so as well, hence the vendor
	}
	switch dmi("product_name") {
	case "Google Compute Engine", "Google":
		return "gce"
	}
	if dmi("chassis_asset_tag") == azureChassis {
		return "azure"
	}
	return ""
}
