# shellcheck shell=bash
# Shared by scripts that fetch packages: Debian's archives in the machine's apt configuration. Sourced after common.sh.

# archives [RELEASE]: one "URI SUITE" per line, the main archive first. Of the machine's own release (the default) those of updates,
# too; of another release the main one only. Nothing if the machine has none.
archives() {
  apt-get indextargets --format '$(REPO_URI)|$(RELEASE)|$(ORIGIN)|$(COMPONENT)' 'Created-By: Packages' |
    awk -F'|' -v own="$(release)" -v wanted="${1:-$(release)}" '
      $4 != "main" || ($3 != "Debian" && $3 != "") || seen[$1 "|" $2]++ {next}
      $2 !~ /[-\/]/ {if (uri == "") {uri = $1; suite = $2}; next}  # a machine of sid has "unstable" or "sid" here
      index($2, own "-") == 1 {updates[++count] = $1 " " $2}
      END {
        if (uri == "") exit
        print uri, wanted == own ? suite : wanted
        for (i = 1; i <= count && wanted == own; i++) print updates[i]
      }'
}

readonly archive_keyring=/usr/share/keyrings/debian-archive-keyring.gpg
