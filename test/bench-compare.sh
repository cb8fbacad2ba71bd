#!/bin/sh
# Compares the benchmarks of the working tree with those of a git ref.
#
#   test/bench-compare.sh [ref]     default: where the branch left main, or else HEAD~1;
#                                   with changes that are not committed, HEAD
#
#   PACKAGES  what to measure     default: the stages and what joins them
#   BENCH     which benchmarks    default: all that need no servers
#   COUNT     how often           default: 10, which benchstat needs for a verdict
#
# Both sides are built first and then take turns, run by run, so that what else the machine
# does meanwhile hits them alike.
set -eu

GO=${GO:-go}
BENCHSTAT=golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
PACKAGES=${PACKAGES:-./decoder ./checkpoint ./replication ./internal/encode ./sink/kafka ./internal/relay}
BENCH=${BENCH:-^Benchmark(Decode|Transaction|InOrder|Partitions|Transactions|Confirmed|Run|Route|Send|Request|Publish|Session)$}
COUNT=${COUNT:-10}
BENCHTIME=${BENCHTIME:-100ms}

default_ref() {
	if ! git diff --quiet HEAD; then
		echo HEAD
	elif base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main) && [ "$base" != "$(git rev-parse HEAD)" ]; then
		echo "$base"
	else
		echo HEAD~1
	fi
}

cd "$(git rev-parse --show-toplevel)"
ref=${1:-$(default_ref)}
work=$(mktemp -d)
trap 'git worktree remove --force "$work/tree" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
git worktree add --quiet --detach "$work/tree" "$ref"

# build SOURCE SIDE: a test binary for each package that has benchmarks on this side
build() {
	mkdir -p "$work/$2"
	for package in $PACKAGES; do
		[ -d "$1/$package" ] || continue
		name=$(echo "$package" | tr / _)
		(cd "$1" && $GO test -c -o "$work/$2/$name.test" "$package")
	done
}

# measure SOURCE SIDE
measure() {
	for package in $PACKAGES; do
		binary=$work/$2/$(echo "$package" | tr / _).test
		[ -x "$binary" ] || continue
		(cd "$1/$package" && "$binary" -test.run='^$' -test.bench="$BENCH" -test.benchmem -test.benchtime="$BENCHTIME") >>"$work/$2.txt"
	done
}

build "$work/tree" old
build . new
i=0
while [ "$i" -lt "$COUNT" ]; do
	i=$((i + 1))
	echo "run $i of $COUNT" >&2
	measure "$work/tree" old
	measure . new
done
$GO run "$BENCHSTAT" "$(git rev-parse --short "$ref")=$work/old.txt" "tree=$work/new.txt"
