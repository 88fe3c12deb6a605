// Texts to try tokenizers with: many scripts, code, emoji, odd spaces, control characters, long runs, and random ones,
// the same in every run.
import { readFileSync } from "node:fs";

// Numbers from 0 to 2^32 - 1, by a seed.
export function random(seed) {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x9e3779b9) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) % below;
  };
}

const sentences = [
  "The market opens at eight; by noon it's empty, and nobody's sure why they'd come. We've been there, I'm told.",
  "IT'S A TEST: WE'LL SEE IF THEY'RE RIGHT, I'D SAY YOU'VE WON. 'tis 'Tis 's's 'll'LL 'rebel 'Message",
  "Der Zug nach Köln fährt um 17:45 Uhr ab, Gleis 12; die Straße ist naß. Übergröße, Ärger, Öl.",
  "Où est passé l'élève ? Il a dit qu'il n'aimait pas ça : « peut-être demain », œuvre, Noël.",
  "El niño comió piñones en la montaña; ¿cuánto cuesta? ¡Qué más da! São Paulo não é Lisboa, coração.",
  "Zażółć gęślą jaźń. Příliš žluťoučký kůň. Iğdır'da ışık ve İstanbul. Ćevapčići, Đorđe, ŽIVJO.",
  "Hôm nay trời đẹp, chúng tôi đi chợ mua rau và cá. Nguyễn Thị Ánh Tuyết nói: được!",
  "Сегодня хорошая погода, и мы идём на рынок. Скільки це коштує? Ђорђе, Њушка. Ёлка.",
  "Σήμερα ο καιρός είναι καλός και πάμε στην αγορά· πόσο κάνει; Ὀδυσσεύς, ἄνθρωπος.",
  "היום מזג האוויר יפה ואנחנו הולכים לשוק. שָׁלוֹם עֲלֵיכֶם",
  "اليوم الطقس جميل ونحن نذهب إلى السوق. كم السعر؟ مَرْحَبًا بِكُمْ ۱۲۳ ٤٥٦ می‌خواهم",
  "आज मौसम अच्छा है और हम बाज़ार जा रहे हैं। कितना है? १२३४५ ক্ষ আজ আবহাওয়া ভালো। இன்று வானிலை நன்றாக உள்ளது.",
  "วันนี้อากาศดีและเราไปตลาดกัน ราคาเท่าไหร่ ๑๒๓ ຂອບໃຈ ខ្ញុំ မင်္ဂလာပါ བཀྲ་ཤིས",
  "დღეს კარგი ამინდია. Այսօր լավ եղանակ է։ ዛሬ አየሩ ጥሩ ነው። ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ",
  "今天天气很好,我们去市场。多少钱?一二三,123元。這個多少錢?「你好」——他說……",
  "今日は天気がいいので、市場に行きます。いくらですか?カタカナ、ｶﾀｶﾅ、ガギグ、㍿、ＡＢＣ１２３。",
  "오늘은 날씨가 좋아서 시장에 갑니다. 얼마예요? ㄱㄴㄷ 한글 각",
  "🦙 👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ ☕︎ 1️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 😀😃😄😁 ✅➡️",
  "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 ²³¹ ½¾ Ⅷ ⅻ ①② ㊗ ﬁﬂ ª º ſ K Å Ω ǅ ʰ ʼn ",
  "e\u0301 a\u0308\u0323 a\u0323\u0308 o\u0302\u0301 \u1e9b\u0323 \u0344 \u0958 \u2126 \u212b \uf900 \u1100\u1161\u11a8 \uac00\u11a8",
  "a\u0300\u0301\u0302\u0327\u0315\u035c\u0345 \u0301start q\u0307\u0323 d\u0307\u0323 \u0041\u030a\u0301 \u0b47\u0b3e \ud834\udd5e",
  "1 12 123 1234 12345 3.14159 -0.5e-10 0xDEADBEEF 1,000,000 192.168.0.1 2024-02-29T12:34:56Z 50% $9.99 #1",
  "for (int i = 0; i < n; i++) {\n\tif (a[i] != '\\0')\n\t\tsum += a[i]; // don't\n}\n\n\n#include <stdio.h>\r\n\r\n",
  "def f(x):\n    return {k: v**2 for k, v in x.items()}\n\n\nclass A:\n        pass\n  \n   \t \n",
  'SELECT * FROM "users" WHERE name LIKE \'%o\'\'Brien%\';--\n<div class="a b">&nbsp;</div>\n{"a": [1, 2.0, null]}',
  "https://example.org/a/b?c=d&e=%20f#g user@example.org C:\\Users\\me\\file.txt ../a/./b ~/x $HOME `ls -la | wc`",
  "  leading, trailing  ",
  " a  b   c    d     e\tf\t\tg\n h\n  i \n j \n\n k\n \n l\r\nm\r n\r\r\no",
  "\u00a0nbsp\u2003em\u2009thin\u3000ideographic\u202fnarrow\u2028line\u2029paragraph\u1680ogham \u200bzero\u200d\u2060",
  "\0\u0001\u0002\u0007\b\u000b\f\u000e\u001b[0m\u001c\u001d\u001e\u001f\u007f\u0080\u009f\u00ad\ufffd\uffff\u{10ffff}",
  "<s></s><unk><0x41><|eot_id|><|im_start|>user<|im_end|>[INST]<<SYS>>▁_▁▁ ▁ <|endoftext|><tool_call>",
  "!!!???...,,,;;;:::---___***///\\\\\\((()))[[[]]]{{{}}}<<<>>>===+++&&&|||^^^~~~```\"\"\"'''@@@###$$$%%%",
  "_a__b___c a_b-c.d/e\\f a1b2c3 1a2b3c ABCdefGHI camelCaseWord XMLHttpRequest snake_case_word",
];

// What random texts are put together of, beside single characters.
const bits = [
  ..." \t\n\r'\".,;:-_/\\()[]{}<>|&^~`@#$%*+=!?0123456789abcdeimstvlrdABCSTMDLRVE",
  ..."  ", ..."\n\n", "'s", "'T", "'re", "'VE", "'ll", "'Ll", "'d", "'M", " '", "\r\n", "   ", "\u00a0", "\u2028", "\u3000",
  "é", "ß", "и", "Ω", "ש", "ب", "अ", "中", "の", "한", "🦙", "\u0301", "\u0323", "\u200d", "½", "٣", "Ⅷ", "ǅ", "ʰ", "ª",
  "the", " the", "ing", " of", "hello", "WORLD", "12345", "return", "   if", "<|", "|>", "<|eot_id|>", "▁",
];

function runs() {
  const pieces = ["a", " ", "\n", "\t", "0", "!", "é", "中", "🦙", "ab", "a ", " \n", "\r\n", "=-", "\u0301", "'s", "the "];
  return pieces.flatMap((piece) => [2, 3, 4, 5, 7, 8, 16, 31, 64, 127, 600].map((times) => piece.repeat(times)));
}

// Words of one script each, of every script that there is a name for here.
function scripts(next) {
  const names = `Arabic Armenian Balinese Bengali Bopomofo Braille Canadian_Aboriginal Cherokee Coptic Cuneiform
    Cyrillic Deseret Devanagari Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han
    Hangul Hebrew Hiragana Javanese Kannada Katakana Khmer Lao Latin Limbu Linear_B Malayalam Mongolian Myanmar Nko
    Ogham Old_Italic Oriya Osmanya Phoenician Runic Samaritan Sinhala Sundanese Syriac Tagalog Tai_Le Tamil Telugu
    Thaana Thai Tibetan Tifinagh Vai Yi Common Inherited`.split(/\s+/);
  const tests = names.map((name) => new RegExp(`\\p{Script=${name}}`, "u"));
  const members = names.map(() => []);
  for (let code = 0; code < 0x13500; code++) {
    if ((code >= 0x4f00 && code < 0x9f00) || (code >= 0xad00 && code < 0xe000)) continue; // enough of Han and Hangul
    const text = String.fromCodePoint(code);
    const index = tests.findIndex((test) => test.test(text));
    if (index >= 0) members[index].push(text);
  }
  return members.flatMap((letters) =>
    [1, 2].map(() =>
      Array.from({ length: 12 }, () =>
        Array.from({ length: 1 + next(8) }, () => letters[next(letters.length)]).join(""),
      ).join(" "),
    ),
  );
}

function randomTexts(next, count) {
  const any = () => {
    const code = next(0x110000);
    return code >= 0xd800 && code < 0xe000 ? "a" : String.fromCodePoint(code);
  };
  const low = () => String.fromCodePoint(next(0x500));
  const bit = () => bits[next(bits.length)];
  return Array.from({ length: count }, (_, index) => {
    const pick = [bit, bit, bit, low, any][index % 5];
    return Array.from({ length: 1 + next(60) }, () => pick()).join("");
  });
}

export function corpus(count) {
  return (made[count] ??= make(count));
}
const made = {};

function make(count) {
  const next = random(20240229);
  const files = ["corpus.mjs", "../../../README.md", "../../../CMakeLists.txt", "../../../engine/text/tokenizer.c"];
  return [
    "",
    ...Array.from({ length: 0x180 }, (_, code) => String.fromCodePoint(code)),
    ...sentences,
    ...sentences.map((text) => text.normalize("NFD")),
    ...sentences.map((text) => text.toUpperCase()),
    ...runs(),
    ...scripts(next),
    ...randomTexts(next, count),
    ...files.map((name) => readFileSync(new URL(name, import.meta.url), "utf8").slice(0, 20000)),
  ];
}
