#!/bin/sh
# Builds one component in its own worktree: a file and, once an audit has asked for them, tests. The last line is the
# address of the pull request.
set -e
echo "This is $BUILD_COMPONENT." > "$BUILD_COMPONENT.txt"
case "$BUILD_AUDIT" in
  *tests*) echo "$BUILD_COMPONENT works" > "$BUILD_COMPONENT.test" ;;
esac
git add -A
git -c user.name=builder -c user.email=builder@example.org commit -q --allow-empty -m "Build $BUILD_COMPONENT"
echo "https://example.org/pull/$BUILD_COMPONENT-$(git rev-list --count HEAD)"
