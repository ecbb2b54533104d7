package attest

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/attest/attestfake"
)

// clouds has three clouds that sign documents, and a fleet's settings that let in some of their machines.
type clouds struct {
	*testing.T
	ec2      *attestfake.EC2
	gce      *attestfake.GCE
	azure    *attestfake.Azure
	settings Settings
	now      time.Time
}

var (
	pin = []byte("the pin of this fleet's authority")
	key = []byte("a machine's public key")

	instance = attestfake.Instance{Account: "123456789012", Region: "eu-west-1", ID: "i-1234567890abcdef0", PrivateIP: "10.158.112.84"}
	vm       = attestfake.VM{Project: "my-project-1", Zone: "europe-west1-b", ID: "152986662232938449", Name: "pool-1"}
)

const (
	subscription = "8d10da13-8125-4ba9-a717-bf7490507b3d"
	vmID         = "02aab8a4-74ef-476e-8182-f6d2ba4166a6"
)

func newClouds(t *testing.T) *clouds {
	t.Helper()
	c := &clouds{T: t, ec2: attestfake.NewEC2(), gce: attestfake.NewGCE(), azure: attestfake.NewAzure("eastus.metadata.azure.com"), settings: Default(), now: time.Now()}
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Mkdir(filepath.Join(dir, "aws"), 0o700); err != nil {
		t.Fatal(err)
	}
	file("aws/us-east-1.pem", attestfake.NewEC2().Certificate())
	file("aws/eu-west-1.pem", c.ec2.Certificate())
	c.settings.EC2.Accounts, c.settings.EC2.Certificates = []string{instance.Account}, []string{filepath.Join(dir, "aws")}
	c.settings.GCE.Projects, c.settings.GCE.Keys = []string{vm.Project}, file("google.json", c.gce.Keys())
	c.settings.Azure.Subscriptions, c.settings.Azure.Certificates = []string{subscription}, []string{file("azure.pem", c.azure.Certificates())}
	c.settings.Validate(func(key string, value any, bound, remedy string) {
		t.Errorf("%s: %v: %s: %s", key, value, bound, remedy)
	})
	if err := c.settings.Check(); err != nil {
		t.Error(err)
	}
	return c
}

func (c *clouds) verify(provider, signed string) (Machine, error) {
	return New(c.settings, pin).Verify(&api.Document{Provider: provider, Signed: []byte(signed)}, key)
}

func (c *clouds) is(id, provider, signed string) Machine {
	c.Helper()
	m, err := c.verify(provider, signed)
	if err != nil || m.ID != id || m.Late() != nil {
		c.Errorf("got machine %q (%v, %v), want %q", m.ID, err, m.Late(), id)
	}
	return m
}

func (c *clouds) refuses(part, provider, signed string) {
	c.Helper()
	m, err := c.verify(provider, signed)
	if err == nil {
		err = m.Late()
	}
	if err == nil || !strings.Contains(err.Error(), part) {
		c.Errorf("got machine %q, error %v, want one with %q", m.ID, err, part)
	}
}

func (c *clouds) mayBe(m Machine, names ...string) {
	c.Helper()
	for _, n := range names {
		if err := m.MayBe(n); err != nil {
			c.Error(err)
		}
	}
	if err := m.MayBe("another"); err == nil || !strings.Contains(err.Error(), "join.names") {
		c.Errorf("%s may be called another: got error %v", m.ID, err)
	}
}

// An instance of our account is accepted with AWS's signature, whichever region's certificate made it.
func TestEC2(t *testing.T) {
	c := newClouds(t)
	i := instance
	i.Pending = c.now.Add(-time.Minute)
	m := c.is("ec2:123456789012:i-1234567890abcdef0", "ec2", c.ec2.Sign(i.Text()))
	c.mayBe(m, "i-1234567890abcdef0", "ip-10-158-112-84", "ip-10-158-112-84.eu-west-1.compute.internal")

	old := i
	old.Pending = c.now.Add(-31 * time.Minute)
	c.refuses("launched 31m", "ec2", c.ec2.Sign(old.Text()))
	early := i
	early.Pending = c.now.Add(time.Hour)
	c.refuses("clock", "ec2", c.ec2.Sign(early.Text()))
	other := i
	other.Account = "210987654321"
	c.refuses(`account "210987654321" may not join`, "ec2", c.ec2.Sign(other.Text()))
	c.settings.EC2.Regions = []string{"us-east-1"}
	c.refuses(`region "eu-west-1" may not join`, "ec2", c.ec2.Sign(i.Text()))
	c.settings.EC2.Regions = nil

	c.refuses("none of the cloud's certificates", "ec2", attestfake.NewEC2().Sign(i.Text()))
	c.refuses("none of the cloud's certificates", "ec2", attestfake.NewEC2().SignBringing(i.Text()))
	c.refuses("SHA-256", "ec2", c.ec2.SignWeakly(i.Text()))
	c.refuses("not signed", "ec2", i.Text())
	c.refuses("not EC2's", "ec2", c.ec2.Sign(`{"accountId": "123456789012"}`))
	der, err := decode([]byte(c.ec2.Sign(i.Text())))
	if err != nil {
		t.Fatal(err)
	}
	forged := strings.Replace(string(der), "123456789012", "123456789013", 1)
	c.refuses("does not match", "ec2", base64.StdEncoding.EncodeToString([]byte(forged)))
}

// A token is for one fleet and one key: a copy is of no use.
func TestGoogle(t *testing.T) {
	c := newClouds(t)
	v, us := vm, Audience(pin, key)
	v.Created = c.now.Add(-time.Minute)
	m := c.is("gce:my-project-1:europe-west1-b:152986662232938449", "gce", c.gce.Token(v, us, c.now, nil))
	c.mayBe(m, "pool-1", "pool-1.europe-west1-b.c.my-project-1.internal", "152986662232938449")

	c.refuses("another key", "gce", c.gce.Token(v, Audience(pin, []byte("another key")), c.now, nil))
	c.refuses("another fleet", "gce", c.gce.Token(v, Audience([]byte("another pin"), key), c.now, nil))
	c.refuses("in its time", "gce", c.gce.Token(v, us, c.now.Add(-2*time.Hour), nil))
	c.refuses("in its time", "gce", c.gce.Token(v, us, c.now.Add(10*time.Minute), nil))
	c.refuses("in its time", "gce", c.gce.Token(v, us, c.now, func(claims map[string]any) { claims["iss"] = "https://example.com" }))
	c.refuses("when it ends", "gce", c.gce.Token(v, us, c.now, func(claims map[string]any) { delete(claims, "exp") }))
	c.refuses("format=full", "gce", c.gce.Token(v, us, c.now, func(claims map[string]any) { delete(claims, "google") }))
	c.refuses("is the file of join.gce.keys fresh", "gce", attestfake.NewGCE().Token(v, us, c.now, nil))
	old := v
	old.Created = c.now.Add(-time.Hour)
	c.refuses("launched 1h", "gce", c.gce.Token(old, us, c.now, nil))
	other := v
	other.Project = "their-project"
	c.refuses(`project "their-project" may not join`, "gce", c.gce.Token(other, us, c.now, nil))
	c.settings.GCE.Zones = []string{"us-central1-a"}
	c.refuses("zone", "gce", c.gce.Token(v, us, c.now, nil))

	// A token that is signed with nothing, or with the public key as a secret.
	parts := strings.Split(c.gce.Token(v, us, c.now, nil), ".")
	for _, header := range []string{`{"alg":"none"}`, `{"alg":"HS256"}`} {
		c.refuses("RS256", "gce", base64.RawURLEncoding.EncodeToString([]byte(header))+"."+parts[1]+"."+parts[2])
	}
}

// An attested document is for one key, and ends soon.
func TestAzure(t *testing.T) {
	c := newClouds(t)
	nonce, life := Nonce(pin, key), 6*time.Hour
	m := c.is("azure:"+subscription+":"+vmID, "azure", c.azure.Document(subscription, strings.ToUpper(vmID), nonce, c.now, life))
	c.mayBe(m, vmID)

	c.refuses("another key", "azure", c.azure.Document(subscription, vmID, Nonce(pin, []byte("another key")), c.now, life))
	c.refuses("another key", "azure", c.azure.Document(subscription, vmID, "", c.now, life))
	c.refuses("out of its time", "azure", c.azure.Document(subscription, vmID, nonce, c.now.Add(-7*time.Hour), life))
	c.refuses("out of its time", "azure", c.azure.Document(subscription, vmID, nonce, c.now.Add(time.Hour), life))
	c.refuses("subscription", "azure", c.azure.Document(vmID, vmID, nonce, c.now, life))
	c.refuses("which machine", "azure", c.azure.Document(subscription, "", nonce, c.now, life))
	c.refuses("does not lead to", "azure", attestfake.NewAzure("eastus.metadata.azure.com").Document(subscription, vmID, nonce, c.now, life))
	c.refuses("attested documents", "azure", "{}")
	stranger := attestfake.NewAzure("metadata.azure.com.example.net")
	if err := os.WriteFile(c.settings.Azure.Certificates[0], stranger.Certificates(), 0o600); err != nil {
		t.Fatal(err)
	}
	c.refuses("not Azure's metadata service", "azure", stranger.Document(subscription, vmID, nonce, c.now, life))
}

// A document of one cloud is refused under another's name; a cloud that is not in the settings lets no machine in.
func TestProvidersAreApart(t *testing.T) {
	c := newClouds(t)
	i := instance
	i.Pending = c.now
	c.refuses("identity token", "gce", c.ec2.Sign(i.Text()))
	c.refuses("attested", "azure", c.ec2.Sign(i.Text()))
	c.refuses("not signed", "ec2", c.azure.Document(subscription, vmID, Nonce(pin, key), c.now, time.Hour))
	c.refuses(`no documents of "oci"`, "oci", "{}")
	c.refuses("at most", "ec2", strings.Repeat("A", maxDocument+1))
	c.settings.EC2 = EC2{}
	c.refuses("set join for", "ec2", c.ec2.Sign(i.Text()))
	c.settings.Names = namesAny
	m := c.is("gce:my-project-1:europe-west1-b:152986662232938449", "gce", c.gce.Token(attestfake.VM{Project: vm.Project, Zone: vm.Zone, ID: vm.ID, Created: c.now}, Audience(pin, key), c.now, nil))
	if err := m.MayBe("another"); err != nil {
		t.Errorf("any name will do: %v", err)
	}
}

// A certificate file that is missing, or is something else, is reported as the coordinator's fault, not the machine's.
func TestFilesAreReadAnew(t *testing.T) {
	c := newClouds(t)
	v := vm
	v.Created = c.now
	token := c.gce.Token(v, Audience(pin, key), c.now, nil)
	fresh, err := os.ReadFile(c.settings.GCE.Keys)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{"", "{}", `{"keys": [{"kty": "oct", "k": "AAAA"}]}`} {
		if err := os.WriteFile(c.settings.GCE.Keys, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		c.refuses("join.gce.keys", "gce", token)
		if err := c.settings.Check(); err == nil {
			t.Errorf("keys %q: want an error", data)
		}
	}
	if err := os.WriteFile(c.settings.GCE.Keys, fresh, 0o600); err != nil {
		t.Fatal(err)
	}
	c.is("gce:my-project-1:europe-west1-b:152986662232938449", "gce", token)
	c.settings.EC2.Certificates = []string{c.settings.GCE.Keys}
	if err := c.settings.Check(); err == nil || !strings.Contains(err.Error(), "no certificate in PEM form") {
		t.Errorf("got error %v, want that it is no certificate", err)
	}
	whole := c.ec2.Certificate() // the first of two is cut short: skipped silently, its machines would be refused without a reason
	if err := os.WriteFile(c.settings.GCE.Keys, slices.Concat(whole[:len(whole)/2], []byte("\n"), whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.settings.Check(); err == nil || !strings.Contains(err.Error(), "2 certificates begin in it, 1 can be read") {
		t.Errorf("got error %v, want that one of two certificates cannot be read", err)
	}
}

// Settings that would let every machine in, or none, are faults.
func TestSettings(t *testing.T) {
	good := newClouds(t).settings
	for want, change := range map[string]func(*Settings){
		"join.names":                    func(s *Settings) { s.Names = "some" },
		"join.ec2.accounts":             func(s *Settings) { s.EC2.Accounts = nil },
		"join.ec2.accounts[0]":          func(s *Settings) { s.EC2.Accounts = []string{"12345"} },
		"join.ec2.regions[0]":           func(s *Settings) { s.EC2.Regions = []string{"Ireland"} },
		"join.ec2.certificates":         func(s *Settings) { s.EC2.Certificates = nil },
		"join.ec2.max_age":              func(s *Settings) { s.EC2.MaxAge = 0 },
		"join.gce.projects":             func(s *Settings) { s.GCE.Projects = nil },
		"join.gce.zones[0]":             func(s *Settings) { s.GCE.Zones = []string{"europe-west1"} },
		"join.gce.keys":                 func(s *Settings) { s.GCE.Keys = "" },
		"join.azure.subscriptions[0]":   func(s *Settings) { s.Azure.Subscriptions = []string{"mine"} },
		"join.azure.certificates":       func(s *Settings) { s.Azure.Certificates = nil },
		"join.ec2.accounts, as nothing": nil,
	} {
		s := good
		if change == nil {
			s, want = Default(), ""
		} else {
			change(&s)
		}
		var got []string
		s.Validate(func(key string, _ any, _, _ string) { got = append(got, key) })
		if strings.Join(got, " ") != want {
			t.Errorf("got faults at %q, want %q", got, want)
		}
	}
}

// The names of regions and zones are not all of one length.
func TestRegionsAndZonesAsTheCloudsCallThem(t *testing.T) {
	s := newClouds(t).settings
	// https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html and its partitions
	s.EC2.Regions = []string{"eu-west-1", "ap-southeast-7", "us-gov-east-1", "cn-northwest-1", "us-isob-east-1", "eu-isoe-west-1", "eusc-de-east-1"}
	// https://cloud.google.com/compute/docs/regions-zones, and its AI zones
	s.GCE.Zones = []string{"us-central1-f", "northamerica-northeast2-a", "europe-west10-a", "europe-west12-c", "us-central1-ai1a"}
	s.Validate(func(key string, value any, bound, _ string) { t.Errorf("%s: %v %s", key, value, bound) })
}

// Whatever bytes a machine sends, Verify soon returns an error.
func FuzzVerify(f *testing.F) {
	dir := f.TempDir()
	ec2, azure, gce := attestfake.NewEC2(), attestfake.NewAzure("metadata.azure.com"), attestfake.NewGCE()
	s := Default()
	for name, data := range map[string][]byte{"ec2": ec2.Certificate(), "azure": azure.Certificates(), "gce": gce.Keys()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			f.Fatal(err)
		}
	}
	s.EC2.Accounts, s.EC2.Certificates = []string{"210987654321"}, []string{filepath.Join(dir, "ec2")}
	s.GCE.Projects, s.GCE.Keys = []string{"none-of-these"}, filepath.Join(dir, "gce")
	s.Azure.Subscriptions, s.Azure.Certificates = []string{vmID}, []string{filepath.Join(dir, "azure")}
	f.Add("ec2", []byte(ec2.Sign(instance.Text())))
	f.Add("gce", []byte(gce.Token(vm, Audience(pin, key), time.Now(), nil)))
	f.Add("azure", []byte(azure.Document(subscription, vmID, Nonce(pin, key), time.Now(), time.Hour)))
	f.Add("ec2", []byte("MIAGCSqGSIb3DQEHAqCAMIACAQExDzANBglghkgBZQMEAgEFADCABgkqhkiG9w0BBwGggA=="))
	v := New(s, pin)
	f.Fuzz(func(t *testing.T, provider string, signed []byte) {
		if m, err := v.Verify(&api.Document{Provider: provider, Signed: signed}, key); err == nil {
			t.Errorf("%s: let in as %s", provider, m.ID)
		}
	})
}
