package coordinator

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// An app in any language sends heartbeats, is listed, and says that it is over, by HTTP with its own certificate.
func TestAppSpeaksHTTP(t *testing.T) {
	inTown(t, func(v *town) {
		spark := &certs.Name{Role: certs.RoleApp, Name: "spark"}
		other := &certs.Name{Role: certs.RoleApp, Name: "other"}
		node := &certs.Name{Role: certs.RoleNode, Name: "a"}
		for _, c := range []struct {
			path string
			as   *certs.Name
			from string // the page that a browser is on
			want int
		}{
			{"/apps/p/beat", nil, "", http.StatusUnauthorized},
			{"/apps/p/beat", node, "", http.StatusForbidden},
			{"/apps/p/beat?lease=soon", spark, "", http.StatusBadRequest},
			{"/apps/p/beat?lease=1s", spark, "", http.StatusBadRequest},
			{"/apps/-/beat", spark, "", http.StatusBadRequest},
			{"/apps/a%2Fb/beat", spark, "", http.StatusBadRequest},
			{"/apps/p/over", spark, "", http.StatusNotFound},
			{"/apps/p/beat?lease=5m", spark, "", http.StatusNoContent},
			{"/apps/p/beat?lease=5m", other, "", http.StatusForbidden},
			{"/apps/p/over", other, "", http.StatusForbidden},
			{"/apps/p/over", spark, "https://elsewhere.example", http.StatusForbidden},
			{"/apps/q/beat", spark, "", http.StatusNoContent},
			{"/apps/q/over", spark, "", http.StatusNoContent},
			{"/apps/q/over", spark, "", http.StatusNoContent}, // the answer was lost
			{"/apps/q/beat", spark, "", http.StatusConflict},
		} {
			var header http.Header
			if c.from != "" {
				header = http.Header{"Origin": {c.from}, "Sec-Fetch-Site": {"cross-site"}}
			}
			if code, body := v.ask(http.MethodPost, c.path, c.as, header); code != c.want {
				v.Errorf("%s as %v: got %d %s, want %d", c.path, c.as, code, body, c.want)
			}
		}
		if code, _ := v.get("/apps", nil); code != http.StatusUnauthorized {
			v.Errorf("a list for anybody: got %d", code)
		}
		var all []api.AppJSON
		if _, body := v.get("/apps", spark); json.Unmarshal([]byte(body), &all) != nil || len(all) != 2 ||
			all[0].App != "p" || all[0].State != "RUNNING" || all[0].Owner != "app:spark" || *all[0].Lease != 300 || all[1].State != "OVER" || all[1].Why != "it said so" {
			v.Errorf("got %s", body)
		}
	})
}
