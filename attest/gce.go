package attest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// instanceClaims is the part that is used here of Google's identity token of format=full.
// https://cloud.google.com/compute/docs/instances/verifying-instance-identity
type instanceClaims struct {
	Google struct {
		ComputeEngine struct {
			ProjectID string `json:"project_id"`
			Zone      string `json:"zone"`
			ID        string `json:"instance_id"`
			Name      string `json:"instance_name"`
			Created   int64  `json:"instance_creation_timestamp"`
		} `json:"compute_engine"`
	} `json:"google"`
}

const googleIssuer = "https://accounts.google.com"

// verify checks an identity token and that it was made for the audience, which names this fleet and the machine's key.
func (g GCE) verify(text []byte, audience, names string, now time.Time) (Machine, error) {
	token, err := jwt.ParseSigned(strings.TrimSpace(string(text)), []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return Machine{}, errors.New("the document is not an identity token of Google's (a JWT, RS256)")
	}
	keys, err := g.keys()
	if err != nil {
		return Machine{}, fmt.Errorf("the coordinator cannot read Google's keys: %w", err)
	}
	var claims jwt.Claims
	var says instanceClaims
	if err := token.Claims(keys, &claims, &says); err != nil {
		return Machine{}, errors.New("the token's signature does not match it, or is by a key that the coordinator does not have: is the file of join.gce.keys fresh?")
	}
	// The library's checks pass a token without an expiry or an issue time.
	if claims.Expiry == nil || claims.IssuedAt == nil {
		return Machine{}, errors.New("the token does not say when it ends")
	}
	switch err := claims.ValidateWithLeeway(jwt.Expected{Issuer: googleIssuer, AnyAudience: jwt.Audience{audience}, Time: now}, skew); {
	case errors.Is(err, jwt.ErrInvalidAudience):
		return Machine{}, errors.New("the token was made for another fleet, or for another key than that of the request")
	case err != nil:
		return Machine{}, fmt.Errorf("the token is not one of %s in its time: see to the clocks of machine and coordinator", googleIssuer)
	}
	i := says.Google.ComputeEngine
	if i.ProjectID == "" || i.ID == "" || i.Zone == "" || i.Created == 0 {
		return Machine{}, errors.New("the token does not say which machine it is of: ask for it with format=full")
	}
	if err := errors.Join(among("project", i.ProjectID, g.Projects), among("zone", i.Zone, g.Zones)); err != nil {
		return Machine{}, err
	}
	m := Machine{ID: "gce:" + i.ProjectID + ":" + i.Zone + ":" + i.ID, late: young(time.Unix(i.Created, 0), now, g.MaxAge)}
	if names == namesProven {
		// https://cloud.google.com/compute/docs/networking/using-internal-dns: the names of a zone, and the older ones of a project
		m.names = []string{i.Name, i.Name + "." + i.Zone + ".c." + i.ProjectID + ".internal", i.Name + ".c." + i.ProjectID + ".internal", i.ID}
	}
	return m, nil
}

// keys are Google's, as https://www.googleapis.com/oauth2/v3/certs gives them.
func (g GCE) keys() (*jose.JSONWebKeySet, error) {
	data, err := readFile(g.Keys)
	if err != nil {
		return nil, fmt.Errorf("join.gce.keys: %w", err)
	}
	set := new(jose.JSONWebKeySet)
	if err := json.Unmarshal(data, set); err != nil || len(set.Keys) == 0 {
		return nil, fmt.Errorf("join.gce.keys: %s: no set of JWKs: fetch https://www.googleapis.com/oauth2/v3/certs", g.Keys)
	}
	for _, k := range set.Keys {
		if !k.IsPublic() || !k.Valid() {
			return nil, fmt.Errorf("join.gce.keys: %s: key %.40q is no public key", g.Keys, k.KeyID)
		}
	}
	return set, nil
}
