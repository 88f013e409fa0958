#!/bin/sh
# parts.sh TREE: configures the tree as on a host without cmocka. Every library that a program links
# with must be built there, and the target `programs` has all installed files, and no test.
set -eu
tree=$(cd "$1" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat > "$dir/pkg-config" <<'END'
#!/bin/sh
case "$*" in *cmocka*) exit 1 ;; esac
exec pkg-config "$@"
END
chmod +x "$dir/pkg-config"
export PKG_CONFIG="$dir/pkg-config"
cmake -S "$tree" -B "$dir/build" -G Ninja -DLONGHAUL_CUDA=OFF > "$dir/said"
grep -q "No cmocka" "$dir/said" || { echo "cmocka was found all the same"; exit 1; }
ninja -C "$dir/build" -t commands all > "$dir/all"
ninja -C "$dir/build" -t commands programs > "$dir/programs"
# CMake takes the name of a missing target for a library of the system.
if grep -o -e " -llh_[a-z_]*" "$dir/all"; then
    echo "the libraries above are no targets without cmocka"
    exit 1
fi
for program in server/longhaul-server worker/longhaul-worker deploy/longhaul liblonghaul.so; do
    grep -q -e "-o [^ ]*$program" "$dir/programs" || { echo "programs has no $program"; exit 1; }
done
if grep -o -e "-o \(bench\|tests\)/[^ ]*" "$dir/programs"; then
    echo "programs builds the files above, which are not installed"
    exit 1
fi
