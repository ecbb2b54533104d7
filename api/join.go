package api

// What a machine without a certificate and a coordinator say to each other over HTTP, on the coordinator's port for calls:
// GET /ca answers the fleet's CAs in PEM form, POST /join takes a JoinRequest and answers a JoinReply or a JoinRefusal.

// JoinProtocol is the protocol (ALPN, RFC 7301) that a machine names in its TLS handshake when it comes for a certificate.
// Such a connection needs no certificate, and can do nothing but join.
const JoinProtocol = "lifeboat-join/1"

// JoinRequest asks for a certificate. The Token or the Document shows that the machine may have one.
type JoinRequest struct {
	Name     string    `json:"name"`
	Request  []byte    `json:"request"` // a certificate request, DER
	Token    string    `json:"token,omitempty"`
	Document *Document `json:"document,omitempty"`
}

// Document is the cloud's signed statement of which machine this is.
type Document struct {
	Provider string `json:"provider"` // ec2, gce, azure
	Signed   []byte `json:"signed"`   // as the cloud's metadata service gives it
}

// JoinReply is a certificate, and what a node needs to use it.
type JoinReply struct {
	Name         string   `json:"name"` // role and name, as in the certificate
	Certificate  string   `json:"certificate"`
	CA           string   `json:"ca"`
	Coordinators []string `json:"coordinators"` // addresses, as the coordinators know each other
}

// JoinRefusal says why there is no certificate. If it names a Leader, the same request may succeed there.
type JoinRefusal struct {
	Error  string `json:"error"`
	Leader string `json:"leader,omitempty"`
}
