#!/bin/sh
# Installs Tesseract with English, French and script detection where this account may; else names the command to run.
# Never fails: without OCR everything works but scanned pages, and `gristmill doctor` says so.
set -u

APT="apt-get install -y --no-install-recommends tesseract-ocr tesseract-ocr-eng tesseract-ocr-fra tesseract-ocr-osd"

complete() {
    command -v tesseract >/dev/null 2>&1 || return 1
    found=$(tesseract --list-langs 2>/dev/null)
    for language in eng fra osd; do
        printf '%s\n' "$found" | grep -qx "$language" || return 1
    done
}

has() { command -v "$1" >/dev/null 2>&1; }

complete && exit 0

command=""
if has apt-get; then
    command="sudo apt-get update && sudo $APT"
    if [ "$(id -u)" = 0 ]; then
        export DEBIAN_FRONTEND=noninteractive
        echo "gristmill: installing tesseract with apt-get"
        apt-get update -qq && $APT -qq </dev/null
    fi
elif has brew; then
    command="brew install tesseract tesseract-lang"
    echo "gristmill: installing tesseract with brew"
    $command </dev/null
elif has dnf; then
    command="sudo dnf install tesseract tesseract-langpack-eng tesseract-langpack-fra tesseract-osd"
elif has pacman; then
    command="sudo pacman -S tesseract tesseract-data-eng tesseract-data-fra tesseract-data-osd"
elif has apk; then
    command="sudo apk add tesseract-ocr tesseract-ocr-data-eng tesseract-ocr-data-fra tesseract-ocr-data-osd"
fi

if ! complete; then
    echo "gristmill: tesseract or one of its languages eng, fra, osd is missing, so scanned pages cannot be read."
    echo "gristmill: to install it run: ${command:-your package manager, for tesseract 5 with eng, fra and osd}"
fi
exit 0
