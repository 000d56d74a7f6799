#!/bin/sh
# Passes what is committed on the component's branch; the pages must have tests.
set -e
git cat-file -e "build/$BUILD_COMPONENT:$BUILD_COMPONENT.txt"
if [ "$BUILD_COMPONENT" = web ] && ! git cat-file -e build/web:web.test 2>/dev/null; then
  echo "there are no tests"
  exit 1
fi
