#!/usr/bin/env bash
# Gets text in seven languages: Debian's translated manual pages to train on, its handbook held out.
#
#   ./deploy/text/corpora.sh [--out DIR] [--packages DIR]      (data/text, data/packages)
#
# Packages are downloaded, not installed; root is not needed. A second call finds everything there
# and returns at once. Exit codes: 0 done, 1 failed, 2 wrong command line, 3 no package or no tool.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=data/text packages=data/packages
names="manpages manpages-dev manpages-zh manpages-ja manpages-de manpages-fr manpages-es
    manpages-pt-br debian-handbook"

usage() {
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit "$1"
}
missing() {
    cat >&2 <<TEXT
corpora: $1
To use text of your own: put it into DIR/<region>/<language>/*.txt and DIR/heldout/<language>.txt,
then run \`longhaul data prepare --text DIR --out data/tokens\`.
TEXT
    exit 3
}
while [ $# -gt 0 ]; do
    case $1 in
    --out | --packages)
        [ $# -gt 1 ] || usage 2 >&2
        printf -v "${1#--}" %s "$2"
        shift 2
        ;;
    --help | -h) usage 0 ;;
    *) usage 2 >&2 ;;
    esac
done

lacking() { # the packages that are not there yet
    local name found
    for name in $names; do
        found=$(find "$packages" -maxdepth 1 -name "${name}_*.deb" -print -quit)
        [ -n "$found" ] || printf '%s ' "$name"
    done
}

# apt-get with what it was given, quiet, its words kept for the message. As root it would drop to a
# user who may not write here, and say so: it stays who it is.
apt() {
    apt-get -q -o APT::Sandbox::User=root "$@" >>"$log" 2>&1
}

download() { # with the lists given by further options; into $packages by way of a folder of its own
    local part="$packages/partial"
    rm -rf "$part" && mkdir -p "$part"
    # shellcheck disable=SC2046 # names without blanks
    (cd "$part" && apt "$@" download $(cd "$start" && lacking)) || return 1
    find "$part" -name '*.deb' -exec mv -t "$packages" {} +
    rm -rf "$part"
}

fetch() {
    [ -n "$(lacking)" ] || return 0
    command -v apt-get >/dev/null || missing "there is no apt-get here to fetch $(lacking)"
    local lists own
    log=$(cd "$packages" && pwd)/apt.log start=$PWD
    : >"$log"
    download && return 0
    # The machine's lists lack them, or are old: lists of our own, so that root is not needed.
    lists=$(cd "$packages" && pwd)/lists
    mkdir -p "$lists/partial"
    : >"$log"
    own=(-o "Dir::State::Lists=$lists" -o "Dir::Cache=$lists" -o Debug::NoLocking=true)
    if ! { apt "${own[@]}" update && download "${own[@]}"; }; then
        grep -E '^(Err|W: Failed|E):? ' "$log" | head -n 3 >&2 || true
        missing "cannot fetch $(lacking)(all that apt-get said: $log)"
    fi
    rm -rf "$lists"
}

command -v python3 >/dev/null || missing "there is no python3 here to read the packages with"
command -v dpkg-deb >/dev/null || missing "there is no dpkg-deb here to read the packages with"
mkdir -p "$out" "$packages"
fetch
# What the text was made of, and by what.
stamp=$(cd "$packages" && sha256sum ./*.deb "$here/corpora.py" | sed 's| .*/| |' | sha256sum)
if [ -e "$out/.made-of" ] && [ "$(cat "$out/.made-of")" = "$stamp" ]; then
    cat "$out/.sizes"
    echo "$out is up to date"
    exit 0
fi
rm -f "$out/.made-of"
python3 "$here/corpora.py" --packages "$packages" --out "$out" | tee "$out/.sizes"
echo "$stamp" >"$out/.made-of"
