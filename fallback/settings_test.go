package fallback_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/fallback"
)

// file is a file of settings with this section alone.
type file struct {
	Fallback fallback.Settings `yaml:"fallback"`
}

func (f *file) Validate(report func(key string, value any, bound, remedy string)) {
	f.Fallback.Validate(report)
}

func TestSettings(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"{dir: /mnt/spill}":             "",
		"{dir: /mnt/spill, keep: 168h}": "",
		"{layout: spark-fallback, s3: {bucket: spill, prefix: spark/, region: eu-west-1}}": "",
		"{s3: {bucket: spill, endpoint: https://s3.example:9000, path_style: true}}":       "",
		"{s3: {bucket: spill, endpoint: http://127.0.0.1:9000}}":                           "",
		"{s3: {bucket: spill, endpoint: 'http://[::1]'}}":                                  "",
		"{name: Spill, dir: /mnt/spill}":                                                   ":1: fallback.name: Spill: must be 1 to 63",
		"{layout: spark, dir: /mnt/spill}":                                                 "fallback.layout: spark: must be blocks or spark-fallback: use blocks",
		"{streams: 0, dir: /mnt/spill}":                                                    "fallback.streams: 0: must be 1 to 64: raise it to 1",
		"{dir: /mnt/spill, s3: {bucket: spill}}":                                           "fallback.s3.bucket: spill: must not stand beside fallback.dir",
		"{dir: /mnt/spill, keep: 1h}":                                                      "fallback.keep: 1h: must be 24h to",
		"{keep: 48h, s3: {bucket: spill}}":                                                 "fallback.keep: 48h: must stand beside fallback.dir: a bucket removes what is old by its own lifecycle rule",
		"{s3: {bucket: s3://spill}}":                                                       "fallback.s3.bucket: s3://spill: must be a bucket's name",
		"{s3: {region: eu-west-1}}":                                                        "fallback.s3.bucket: must name the bucket",
		"{s3: {bucket: spill, prefix: /spill}}":                                            "fallback.s3.prefix: /spill: must be words with a '/' after each",
		"{s3: {bucket: spill, prefix: a/../b/}}":                                           "fallback.s3.prefix",
		"{s3: {bucket: spill, prefix: " + strings.Repeat("long/", 60) + "}}":               "must be at most 256 bytes",
		"{s3: {bucket: spill, endpoint: s3.example:9000}}":                                 "fallback.s3.endpoint: s3.example:9000: must be a URL",
		"{s3: {bucket: spill, endpoint: https://s3.example/spill}}":                        "fallback.s3.endpoint",
		"{s3: {bucket: spill, endpoint: http://s3.example:9000}}":                          "must not carry blocks across the network in clear: use https",
		"{s3: {bucket: spill, acl: public}}":                                               "fallback.s3.acl: unknown key",
	} {
		path := filepath.Join(t.TempDir(), "agent.yaml")
		if err := os.WriteFile(path, []byte("fallback: "+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := config.Load(path, &file{Fallback: fallback.Default()})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestOpenSaysWhichRegionIsMissing(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/nowhere")
	s := fallback.Default()
	s.S3.Bucket = "spill"
	_, err := s.Open(t.Context(), nil)
	wantError(t, err, "fallback.s3.region")
	if none, err := fallback.Default().Open(t.Context(), nil); none != nil || err != nil {
		t.Errorf("without a storage: got %v, %v, want none", none, err)
	}
}
