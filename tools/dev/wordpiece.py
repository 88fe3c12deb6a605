#!/usr/bin/env python3
"""Writes engine/text/wordpiece_table.h: what BERT's normalizer and pre-tokenizer make of each character.

    pip install tokenizers==0.23.3
    tools/dev/wordpiece.py > engine/text/wordpiece_table.h

Both are asked, character by character: their tables are those of old versions of Unicode, on which the ids of published
tokenizers depend. The table is committed; this is run again only for another version of tokenizers.
"""
import tokenizers
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

OPTIONS = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
clean = BertNormalizer(**{**OPTIONS, "clean_text": True})
spread = BertNormalizer(**{**OPTIONS, "handle_chinese_chars": True})
strip = BertNormalizer(**{**OPTIONS, "strip_accents": True})
lower = BertNormalizer(**{**OPTIONS, "lowercase": True})
cut = BertPreTokenizer()
CHARACTERS = [c for c in range(0x110000) if not 0xd800 <= c <= 0xdfff]


def class_of(code):
    """The order of enum wordpiece_class in engine/text/tokenizer_wordpiece.c."""
    character = chr(code)
    cleaned = clean.normalize_str(character)
    if cleaned == "":
        return 1
    if cleaned == " ":
        return 2
    if len(cut.pre_tokenize_str(f"a{character}b")) == 3:
        return 3
    if spread.normalize_str(character) != character:
        return 4
    return 5 if strip.normalize_str(f"a{character}b") == "ab" else 0


def table(entries):
    lines = [""]
    for entry in entries:
        if len(lines[-1]) + len(entry) > 118:
            lines.append("")
        lines[-1] += f"{entry},"
    return "{\n" + "\n".join(lines) + "\n}"


starts, last = [], -1
for code in CHARACTERS:
    now = class_of(code)
    if now != last:
        starts.append(str(code * 8 + now))
    last = now

runs = []  # [first, last, step, difference]
for code in CHARACTERS:
    small = lower.normalize_str(chr(code))
    if small == chr(code) or len(small) > 1:
        continue  # U+0130 has two, but is taken apart before
    difference = ord(small) - code
    run = runs[-1] if runs else None
    if run and run[3] == difference and code - run[1] <= 2 and (run[0] == run[1] or code - run[1] == run[2]):
        run[2], run[1] = code - run[1], code
    else:
        runs.append([code, code, 1, difference])

print(f"""// Written by tools/dev/wordpiece.py from tokenizers {tokenizers.__version__}. Read by engine/text/tokenizer_wordpiece.c alone.
#pragma once
#include <stdint.h>

// clang-format off
// Where a class of characters begins: the first character * 8 + the class.
static const uint32_t wordpiece_classes[] = {table(starts)};

// Characters that have a small form: the first, the last, their distance, and what is added to each.
static const int32_t wordpiece_small[][4] = {table("{" + ",".join(map(str, run)) + "}" for run in runs)};
// clang-format on""")
