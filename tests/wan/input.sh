#!/bin/bash
# Bad input: topology files, settings, command lines. ./input.sh PROGRAM
. "$(dirname "$0")/lib.sh"

bad() {
    printf '%b' "$1" >"$work/bad"
    check "refuses: ${1//$'\n'/; }" says "$2" "$wanem" up "$work/bad"
}
two='region us\nregion eu\n'
bad 'region us\nregion us\n' "bad:2: region 'us' exists already"
bad 'region us\n' 'want at least two regions'
bad 'region 9us\n' 'want a letter'
bad 'region all\n' 'cannot name a region'
bad 'region us hosts=0\n' 'from 1 to 250'
bad 'region us hosts=2x\n' 'whole number'
bad 'region us host=2\n' 'want hosts=N'
bad 'city us\n' "'city'"
bad 'mtu 20\n' 'from 576'
bad 'sysctl kernel.hostname=x\n' 'net.KEY'
bad "${two}link us mars rtt=1ms\n" "no region 'mars'"
bad "${two}link us us rtt=1ms\n" 'cannot have a link to itself'
bad "${two}link us eu\n" 'want a setting'
bad "${two}link us\n" 'want two regions'
bad "${two}link us eu rtt=90\n" 'units us, ms, s'
bad "${two}link us eu rtt=-1ms\n" 'rtt=-1ms'
bad "${two}link us eu rtt=1.2.3ms\n" 'rtt=1.2.3ms'
bad "${two}link us eu rtt=2m\n" 'rtt=2m'
bad "${two}link us eu rtt=100s\n" 'up to 60s'
bad "${two}link us to eu rtt=90ms\n" 'delay='
bad "${two}link us eu rate=1GB\n" 'units bit'
bad "${two}link us eu rate=0gbit\n" 'from 1kbit'
bad "${two}link us eu loss=0.1\n" 'such as 0.1%'
bad "${two}link us eu loss=101%\n" '100%'
bad "${two}link us eu queue=5\n" 'queue=5'
bad "${two}link us eu speed=5\n" 'no such setting'
bad "${two}link us eu rtt=4ms jitter=3ms\n" 'jitter'
bad "${two}link us eu rtt=4ms\nregion ap\n" 'bad:4: name regions before links'
bad "${two}sysctl net.ipv4.no_such_key=1\n" 'no_such_key'
bad "${two}link us eu rtt=1ms\0\n" 'bad:3: a zero byte'
bad "${two}link us eu rtt=1ms loss=\033[1m\n" 'loss=?[1m'
bad "${two}link us eu $(printf 'up %.0s' {1..70})\n" 'too many words'
bad "${two}#$(printf '%01100d' 0)\n" 'bad:3: the line is too long'
bad '' 'want at least two regions'
check "refuses a directory" says 'Is a directory' "$wanem" up "$work"
check "leaves nothing behind when it refuses" gone "$WANEM_INSTANCE"
check "refuses a missing file" says 'No such file' "$wanem" up "$work/none"
check "refuses a bad instance name" says 'instance name' "$wanem" -n ../x show
check "refuses an unknown command" exits 2 "$wanem" fly
check "commands want an instance" says 'is not up' "$wanem" show
check "exec wants an instance" exits 125 "$wanem" exec us -- true
check "down without an instance does nothing" "$wanem" down

check "comes up" "$wanem" up "$work/topology"
before=$("$wanem" show)
check "refuses a bad setting at run time" says 'no such setting' \
    "$wanem" set us eu rtt=10ms speed=1
check "refuses a jitter that some selected link cannot have" says 'jitter would exceed' \
    "$wanem" set us all jitter=29ms
check "changes nothing when it refuses" [ "$before" = "$("$wanem" show)" ]
check "cut wants a region" says 'want a region' "$wanem" cut
check "cut wants a known region" says "no region 'mars'" "$wanem" cut mars
check "goes down" "$wanem" down
verdict
