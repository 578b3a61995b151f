#!/bin/sh
# Starts refold in a container: reads secrets from files, so that no key is in an image, a variable of a manifest or a
# process list. A file named like a variable, in SECRETS_DIR, sets that variable: openai_key sets REFOLD_OPENAI_KEY.
set -eu
dir="${SECRETS_DIR:-/run/secrets}"
for name in openai_key anthropic_key; do
  if [ -r "$dir/$name" ]; then
    variable="REFOLD_$(printf %s "$name" | tr '[:lower:]' '[:upper:]')"
    export "$variable=$(cat "$dir/$name")"
  fi
done
if [ -r "$dir/postgres_password" ]; then
  PGPASSWORD="$(cat "$dir/postgres_password")"
  export PGPASSWORD
fi
exec refold "$@"
