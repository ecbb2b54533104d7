package preemption

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDetect(t *testing.T) {
	for name, row := range map[string]struct {
		dmi  map[string]string
		want string
	}{
		"nitro":         {map[string]string{"sys_vendor": "Amazon EC2", "board_asset_tag": "i-0123456789abcdef0"}, "ec2"},
		"xen":           {map[string]string{"sys_vendor": "Xen", "product_uuid": "EC2E1916-9099-7CAF-FD21-012345ABCDEF"}, "ec2"},
		"xen elsewhere": {map[string]string{"sys_vendor": "Xen", "product_uuid": "45E12AEC-DCD1-B213-94ED-012345ABCDEF"}, ""},
		"lucky uuid":    {map[string]string{"sys_vendor": "QEMU", "product_uuid": "ec2e1916-9099-7caf-fd21-012345abcdef"}, ""},
		"gce":           {map[string]string{"sys_vendor": "Google", "product_name": "Google Compute Engine"}, "gce"},
		"azure":         {map[string]string{"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, "azure"},
		"hyper-v":       {map[string]string{"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, ""},
		"no firmware":   {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "sys/class/dmi/id")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range row.dmi {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := Detect(root); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}
