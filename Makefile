# The targets need Go (the version in go.mod) and nothing else, unless they say so. `make` alone lists them.

# The race detector needs a C compiler. Without one the tests run without it, and say so.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

.PHONY: help build packages run test wander check lint generate e2e hosts interop bench clean

help: ## say what there is
	@sed -n 's/^\([a-z0-9]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

build: ## bin/lifeboat: one static binary; VERSION=1.2.3 is its version where no git tag says it
	CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags='-s -w -X main.release=$(VERSION)' -o bin/ ./cmd/lifeboat # without debug tables and grpc's trace pages: 29 MB, not 52

packages: ## deb and rpm, amd64 and arm64, in bin/packages: the same source gives the same bytes
	packaging/build bin/packages

run: build ## a cluster on loopback, a pretend notice, and blocks leaving the node
	bin/lifeboat dev

# make lint vets. Without GORACE, the race detector would wait a second at the end of every process.
test: ## all tests that need nothing installed
	$(if $(RACE),,@echo "no C compiler: the tests run without the race detector")
	GORACE=atexit_sleep_ms=100 go test -vet=off -timeout 45m $(RACE) ./... # the limit for each package; the longest takes half of it on a slow machine
	go test -vet=off -run '^$$' -bench . -benchtime 1x ./coordinator/... ./dev/... ./disks/... ./migration/... # once each: this shows only that they run

WANDERS := 20

wander: ## more runs of the random stories, of which make test has one or a few; WANDERS=20
	LIFEBOAT_WANDERS=$(WANDERS) go test -count=1 -timeout 10h $(RACE) -run 'Wander|StandsStill|LinksThatBreak' -v ./clustertest ./migration

check: lint test ## both; CI runs build, interop and hosts besides

lint: ## gofmt, vet, staticcheck, go fix
	@unformatted=$$(gofmt -l .) && if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	cd tools && go vet ./...
	go tool -modfile=tools/go.mod staticcheck ./...
	go fix -diff ./...

generate: ## api/*.pb.go from api/*.proto; a test fails when they differ
	cd tools && go run ./protogen ../api ../api

e2e: ## the stories alone, shown as they run: real processes and kill -9; as root also cut networks and booted hosts
	LIFEBOAT_HOSTS=1 go test -count=1 -timeout 20m -p 1 -v ./e2e ./e2e/hosts

# One story of each kind, without the long ones.
HOSTS := Interruption|Poweroff|UpgradeMidDrain|CutLinkMidDrain|RestartsDecommissionNothing|GoldenImage|FromNothing|OneWay|LeaderCutOff

hosts: ## the shortest stories on cut networks and booted hosts, two minutes: the part that CI runs
	LIFEBOAT_HOSTS=1 go test -count=1 -timeout 15m -v ./e2e/hosts -run '^Test($(HOSTS))$$'

interop: ## against other people's programs: AWS's metadata mock, Prometheus's promtool, python3-dbusmock's logind, versitygw's S3, Spark (tools/spark brings it)
	LIFEBOAT_INTEROP=1 go test -count=1 -timeout 20m -v ./interop
	LIFEBOAT_INTEROP=1 go test -count=1 -timeout 20m -v ./e2e -run '^TestSpark'

bench: ## tables for people, and bench/latest.json
	go run ./bench

clean: ## remove what build made
	rm -rf bin
