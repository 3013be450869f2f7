# What a guest does once it has its file system: makes the devices, waits for the other guests, runs
# the command and reports its status. Sends lines over the port "control" (watch.rs).
here=/run/gossamer
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
. $here/settings
fail() {
    echo "gossamer: $1"
    $here/busybox poweroff -f
}

# port NAME: the device of the port of that name
port() {
    for try in $(seq 100); do
        for port in /sys/class/virtio-ports/*; do
            if [ "$(cat "$port/name" 2>/dev/null)" = "$1" ]; then
                echo "/dev/${port##*/}"
                return
            fi
        done
        sleep 0.05
    done
    fail "no port $1"
}
control=$(port control)
exec 9<>"$control"

run() { "$@" || fail "failed: $*"; }
set_to() { echo "$1" >"$2" || fail "cannot write $1 to $2"; }
. $here/network

# Work only starts on a device that is active and has its address (the second in its table).
for device in $DEVICES; do
    port=/sys/class/infiniband/$device/ports/1
    try=0
    until grep -q ACTIVE "$port/state" && grep -q ':ffff:' "$port/gids/1"; do
        [ $((try += 1)) -lt 100 ] || fail "$device is not active, or has no IPv4 address"
        sleep 0.05
    done 2>/dev/null
done
for processor in /sys/devices/system/cpu/cpu[1-9]*/online; do set_to 1 "$processor"; done
set_to "$HUGE_PAGES" /proc/sys/vm/nr_hugepages

echo ready >&9
read -r go <&9

# Becomes the command, in the environment and the folder it is meant for.
become() {
    exec 9>&-
    . $here/environment
    cd "$FOLDER" || exit 125
    . $here/command
    exec "$@"
}
if [ -n "$TERMINAL" ]; then
    # A terminal forgets its size when it is closed.
    (stty $TERMINAL && become) </dev/hvc0 >/dev/hvc0 2>&1
    status=$?
else
    # A port can be opened only once, but a command may open its output again (/dev/stdout).
    mkfifo $here/stdout $here/stderr
    cat $here/stdout >"$(port stdout)" &
    out=$!
    cat $here/stderr >"$(port stderr)" &
    error=$!
    (become) </dev/null >$here/stdout 2>$here/stderr
    status=$?
    # What the command has left running may hold its output open for ever.
    for try in $(seq 100); do
        kill -0 $out 2>/dev/null || kill -0 $error 2>/dev/null || break
        sleep 0.02
    done
fi
dmesg | grep -iE 'oops|BUG:|panic|hung task|general protection|Unable to pin' | grep -v 'ommand line' |
    tail -n 20 | sed 's/^/kernel /' >&9
sync
echo "status $status" >&9
# The machine is ended from outside now.
$here/busybox poweroff -f
