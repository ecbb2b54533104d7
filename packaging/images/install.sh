#!/bin/sh
# Makes this machine an image of a node: it has the package and its settings, and no identity. Packer runs it as root.
#
# With COORDINATORS (host:port,host:port) and PIN it writes settings for instances that join by their cloud's signed document;
# without them user-data writes /etc/lifeboat/agent.yaml. DEB is the package. ROOT is put before paths, for tests.
set -eu

: "${DEB:=/tmp/lifeboat.deb}" "${COORDINATORS:=}" "${PIN:=}" "${PROVIDER:=auto}" "${ROOT:=}" "${LIFEBOAT:=lifeboat}"

if [ -z "$ROOT" ]; then
	if command -v cloud-init >/dev/null; then
		cloud-init status --wait || true # it may still be installing packages; its own failures do not stop this script
	fi
	apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install --yes "$DEB"
	rm -f "$DEB"
	systemctl stop lifeboat-agent lifeboat-sidecar || true
fi

if [ -n "$COORDINATORS" ]; then
	if [ -z "$PIN" ]; then
		echo "install.sh: COORDINATORS without PIN: lifeboat tls pin ca.pem prints it" >&2
		exit 1
	fi
	list=$(printf '%s' "$COORDINATORS" | sed 's/[^,][^,]*/"&"/g')
	mkdir -p "$ROOT/etc/lifeboat"
	cat >"$ROOT/etc/lifeboat/agent.yaml" <<-SETTINGS
		# Instances of this image join by their cloud's word. Stores and the rest go to conf.d.
		coordinators: [$list]
		cloud: {provider: $PROVIDER}
		join: {cloud: true, pin: "$PIN"}
	SETTINGS
	chmod 644 "$ROOT/etc/lifeboat/agent.yaml"
	"$LIFEBOAT" config check "$ROOT/etc/lifeboat/agent.yaml"
fi

if [ -n "$ROOT" ]; then
	exit 0
fi
"$LIFEBOAT" generalize

# Other things that no two machines may share: the machine's id (an empty file is filled at boot, machine-id(5)), SSH's host
# keys, what cloud-init remembers of this instance, logs.
: >/etc/machine-id
rm -f /var/lib/dbus/machine-id /etc/ssh/ssh_host_*
if command -v cloud-init >/dev/null; then
	cloud-init clean --logs
fi
