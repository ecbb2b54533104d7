package lastresort

import (
	"io/fs"
	"testing"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Facts of FallbackStorage.scala and JavaUtils.nonNegativeHash.
func TestSparkName(t *testing.T) {
	for name, want := range map[string]string{
		"shuffle_0_0_0.data":             "app-1/0/581811660/shuffle_0_0_0.data",
		"shuffle_0_0_0.index":            "app-1/0/861282032/shuffle_0_0_0.index",
		"shuffle_1_27_0.data":            "app-1/1/1811889934/shuffle_1_27_0.data",
		"shuffle_1_27_0.index":           "app-1/1/339002862/shuffle_1_27_0.index",
		"shuffle_0_0_0.checksum.ADLER32": "app-1/0/103986100/shuffle_0_0_0.checksum.ADLER32",
	} {
		if got := SparkName("app-1", name); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := inventory.JavaHash("polygenelubricants"); got != 0 { // String.hashCode is MIN_VALUE
		t.Errorf("the hash without a positive twin: got %d, want 0", got)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"id":"cache/-/x","place":"blocks","origin":"a","sum":"","members":[{"name":"x","bytes":0,"crc32c":""}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord("cache/-/x", b)
		if err != nil {
			return
		}
		for _, name := range r.Names() {
			if !fs.ValidPath(name) || !Owns(name) {
				t.Errorf("a record leads to %q", name)
			}
		}
	})
}

// The files of Spark's fallback storage are ours to remove, whether we or Spark put them there. Files beside them are not.
func TestOwnsWhatSparkPutThere(t *testing.T) {
	for name, ours := range map[string]bool{
		"app-20260101000000-0001/7/123/shuffle_7_1_0.index":      true,
		"app-20260101000000-0001/7/123/.shuffle_7_1_0.index.crc": true,
		"application_1_1/7/shuffle_7_1_0.data":                   true,
		"application_1_1/7/.shuffle_7_1_0.data.crc":              true,
		"application_1_1/7/.shuffle_7_1_0.data":                  false,
		"application_1_1/7/shuffle_7_1_0.data.crc":               false,
		"application_1_1/7/.notes.crc":                           false,
		".shuffle_7_1_0.data.crc":                                false,
	} {
		if got := Owns(name); got != ours {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
