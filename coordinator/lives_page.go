package coordinator

import (
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// Apps beat over HTTP too: programs in most languages have HTTP at hand, and no code generated from api/*.proto.
//
//	curl --cert spark.pem --key spark.key --cacert ca.pem -X POST 'https://c1:7410/apps/APP/beat?lease=5m'

func (s *web) listApps(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, api.ListToJSON(s.lives.shown(func(string) bool { return true }), api.AppToJSON))
}

// beatApp takes an app's beat: ?lease=5m says for how long it may be silent.
func (s *web) beatApp(w http.ResponseWriter, r *http.Request) {
	word := &api.BeatAppRequest{App: r.PathValue("app")}
	if said := r.URL.Query().Get("lease"); said != "" {
		lease, err := time.ParseDuration(said)
		if err != nil {
			refuseHTTP(w, http.StatusBadRequest, fmt.Sprintf("lease %q: must be a span such as 5m or 300s", said))
			return
		}
		word.Lease = durationpb.New(lease)
	}
	s.hearApp(w, r, word)
}

// overApp takes an app's word that it is over.
func (s *web) overApp(w http.ResponseWriter, r *http.Request) {
	s.hearApp(w, r, &api.BeatAppRequest{App: r.PathValue("app"), Over: true})
}

func (s *web) hearApp(w http.ResponseWriter, r *http.Request, word *api.BeatAppRequest) {
	name, err := certs.PeerName(*r.TLS)
	if err != nil || name.Role != certs.RoleApp && name.Role != certs.RoleOperator {
		refuseHTTP(w, http.StatusForbidden, fmt.Sprintf("%s may not speak for an app: show an app's or an operator's certificate", name))
		return
	}
	err = s.lives.hear(name, word)
	if _, deposed := err.(overtaken); deposed {
		s.turnAway(w, r)
		return
	}
	if err != nil {
		refuseHTTP(w, httpCode(err), messageOf(err))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// httpCode is the status of a call's refusal.
func httpCode(err error) int {
	switch status.Code(err) {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.NotFound:
		return http.StatusNotFound
	case codes.FailedPrecondition:
		return http.StatusConflict
	case codes.Unavailable, codes.ResourceExhausted:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
