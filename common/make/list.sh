#!/bin/sh
# list.sh STAGES...: what `make stage` prints: a line for each stage, with the idea that its
# descriptor states.
descriptor='/^\(static \)\{0,1\}\(const \)\{0,1\}struct stage/,/};/'
for stage in "$@"; do
    number=${stage%%_*}
    idea=$(sed -n "$descriptor"'s/.*\.idea = "\(.*\)",.*/\1/p' "$stage"/variants.c* "$stage"/stage.c* 2>/dev/null | head -n 1)
    echo "stage ${number#0}  $stage  $idea"
done
