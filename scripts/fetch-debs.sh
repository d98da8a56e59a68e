#!/bin/sh
# Unpack Debian packages with all that they need into a folder, leaving the system's apt alone.
#
# usage: fetch-debs.sh FOLDER SUITE ARCHITECTURE PACKAGE...
#        -> FOLDER/root (the unpacked tree), FOLDER/DEBS.sha256 (what it was made from)
#        ARCHITECTURE `source`: one source package, unpacked and patched
#
# Needs apt-get and a configured Debian mirror, but neither root nor the package lists: apt runs
# with a configuration, a state and a cache of its own, so SUITE may differ from the release that is
# installed, and every machine gets the same versions. Only this script downloads Debian packages.
set -eu

folder=${1:?folder}
suite=${2:?suite}
architecture=${3:?architecture}
shift 3
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

for tool in apt-get apt-config dpkg-deb; do
    command -v "$tool" >/dev/null || { echo "fetch-debs: $tool is missing; this needs Debian" >&2; exit 2; }
done
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
apt=$folder/apt
binary=$architecture
[ "$architecture" = source ] && binary=$(dpkg --print-architecture)

# apt itself tells which mirrors are configured, whatever the format of its source files.
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
mirrors=$(apt-get update --print-uris 2>/dev/null |
    sed -n "s|^'\([^']*\)/dists/$codename/main/binary-.*|\1|p" | sort -u)
[ -n "$mirrors" ] || { echo "fetch-debs: no apt source for '$codename main' is configured" >&2; exit 3; }

write_configuration() { # $1: mirror
    rm -rf "$apt"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/etc"
    : >"$apt/status" # nothing counts as installed: libc comes along too
    option=
    [ -r "$keyring" ] && option="[signed-by=$keyring] "
    kind=deb
    [ "$architecture" = source ] && kind=deb-src
    echo "$kind $option$1 $suite main" >"$apt/etc/sources.list"
    {
        apt-config dump | grep '^Acquire::' | grep -v '^Acquire::Languages' || : # proxies, TLS
        cat <<CONFIGURATION
APT::Architecture "$binary";
APT::Architectures { "$binary"; };
APT::Default-Release "";
APT::Install-Recommends "0";
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::Cache "$apt/cache";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::sourcelist "$apt/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
CONFIGURATION
    } >"$apt/apt.conf"
}

download() { # $1: mirror, then packages
    write_configuration "$1"
    shift
    APT_CONFIG=$apt/apt.conf apt-get -qq update || return 1
    if [ "$architecture" = source ]; then
        (cd "$apt/cache/archives" && APT_CONFIG=$apt/apt.conf apt-get -qq --download-only source "$@")
    else
        APT_CONFIG=$apt/apt.conf apt-get -qq --download-only --yes install "$@" >/dev/null
    fi
}

done=
for mirror in $mirrors; do
    if download "$mirror" "$@"; then
        done=yes
        break
    fi
    echo "fetch-debs: $mirror gave no $* ($suite, $architecture)" >&2
done
[ -n "$done" ] || exit 4

rm -rf "$folder/root" "$folder/root.new"
if [ "$architecture" = source ]; then # apt has checked the digests, by the signed list of sources
    (cd "$apt/cache/archives" && dpkg-source --no-check --no-copy -x ./*.dsc "$folder/root.new") >/dev/null
else
    mkdir "$folder/root.new"
    for deb in "$apt"/cache/archives/*.deb; do
        dpkg-deb -x "$deb" "$folder/root.new"
    done
fi
(cd "$apt/cache/archives" && find . -maxdepth 1 -type f ! -name lock -exec sha256sum {} +) >"$folder/DEBS.sha256"
mv "$folder/root.new" "$folder/root"
rm -rf "$apt"
