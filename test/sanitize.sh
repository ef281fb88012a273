#!/bin/sh
# Builds the extension with sanitizers, apart from the normal build, and runs the tests of `retrieval` on
# it. Usage: [SANITIZER=thread] test/sanitize.sh [pytest arguments]
# SANITIZER is what the compiler's -fsanitize takes: address,undefined by default; or thread, which runs
# the tests that use threads.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
sanitizer=${SANITIZER:-address,undefined}
out=build/sanitize-$(echo "$sanitizer" | tr , -)
SPARSE_EMBED_CFLAGS="-fsanitize=$sanitizer -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g" \
    "$python" setup.py --quiet build --build-base "$out" --build-lib "$out/lib"
tests="test/retrieval/test_index_failures.py test/retrieval/test_index_stress.py test/retrieval/test_threads.py
    test/retrieval/test_mapped_files.py test/retrieval/test_tuning.py test/retrieval/test_rerank.py"
case $sanitizer in
thread)
    library=libtsan.so
    chosen=test
    tests="$tests test/retrieval/test_index.py::test_concurrent_searches_on_one_index
        test/retrieval/test_index.py::test_building_with_threads_gives_the_same_index
        test/retrieval/test_sharded_index.py"
    ;;
*)
    library=libasan.so
    chosen="not fork" # its own locks stay closed in a child if a thread had one while another forked
    tests="$tests test/retrieval/test_index.py test/retrieval/test_index_ids.py test/retrieval/test_index_file.py
        test/retrieval/test_cells.py
        test/fuzz/test_fuzz.py::test_damaged_input_is_refused_or_harmless[index_files]
        test/fuzz/test_fuzz.py::test_damaged_input_is_refused_or_harmless[queries]"
    ;;
esac
[ $# -gt 0 ] || set -- $tests -k "$chosen"
reports=$out/report
rm -f "$reports".*
# CPython itself keeps memory until it exits, so leaks are not looked for. Freed memory that is kept to
# notice its use must be less than what the fuzzer allows a case. The allocator that fails comes before
# that of the sanitizer. SIGBUS is ours to handle. Reports go to files: pytest would keep them to itself.
options="handle_sigbus=0:log_path='$PWD/$reports'"
failed=0
LD_PRELOAD="$(${CC:-gcc} -print-file-name=$library) $(${CXX:-g++} -print-file-name=libstdc++.so)" \
    ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=32:verify_asan_link_order=0:$options \
    UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=die_after_fork=0:$options \
    PYTHONPATH="$out/lib" "$python" -m pytest -p no:cacheprovider "$@" || failed=$?
for report in "$reports".*; do
    [ ! -e "$report" ] || { cat "$report" && failed=1; }
done
exit $failed
