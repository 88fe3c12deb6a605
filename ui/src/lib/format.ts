/* Numbers, ages and times as people read them, in the page's language. Pure.
 *
 * Units always, separate from the figure so that they can be drawn smaller. Memory in powers of 1024, rates in
 * powers of 1000. Widths do not jump: the number of decimals depends on the unit, not on the value. */

import { language } from "../text/language";
import { marked, noun } from "../text/text";

/** A figure and its unit. */
export interface Quantity {
  value: string;
  unit: string;
}

const locale = language === "de" ? "de-DE" : "en-US";
const grouped = [0, 1, 2].map(
  (digits) => new Intl.NumberFormat(locale, { minimumFractionDigits: digits, maximumFractionDigits: digits }),
);

/** 1271 → "1,271", with so many decimals (0 to 2). */
export function figure(value: number, decimals = 0): string {
  const text = grouped[decimals]!.format(value);
  return /^-[0.,]+$/.test(text) ? text.slice(1) : text;
}

const binary: [number, string, number][] = [
  [2 ** 40, "TiB", 2],
  [2 ** 30, "GiB", 1],
  [2 ** 20, "MiB", 0],
  [2 ** 10, "KiB", 0],
];

function binaryUnit(bytes: number): [number, string, number] {
  // From 1,024 GiB on figures get long; up to 10 TiB GiB is still the more readable.
  if (bytes >= 10 * 2 ** 40) return binary[0]!;
  return binary.slice(1).find(([size]) => bytes >= size) ?? [1, "B", 0];
}

/** 21797699584 → 20.3 GiB */
export function memory(bytes: number): Quantity {
  const [size, unit, decimals] = binaryUnit(bytes);
  return { value: figure(bytes / size, decimals), unit };
}

/** Both in the unit of the total: 20.3, 24.0 GiB */
export function memoryOf(used: number, total: number): { used: string; total: string; unit: string } {
  const [size, unit, decimals] = binaryUnit(total);
  return { used: figure(used / size, decimals), total: figure(total / size, decimals), unit };
}

const decimal: [number, string, number][] = [
  [1e12, "TB/s", 2],
  [1e9, "GB/s", 1],
  [1e6, "MB/s", 1],
  [1e3, "kB/s", 0],
];

/** 1234000 → 1.2 MB/s */
export function rate(bytesPerSecond: number): Quantity {
  const [size, unit, decimals] = decimal.find(([size]) => bytesPerSecond >= size) ?? [1, "B/s", 0];
  return { value: figure(bytesPerSecond / size, decimals), unit };
}

/** 1785 → 1,785 MHz */
export function clock(mhz: number): Quantity {
  return { value: figure(mhz), unit: "MHz" };
}

/** A span of milliseconds as an age: "0.4 s", "48 s", "2 min", "3 h", "5 d". */
export function age(ms: number): string {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${figure(Math.floor(s * 10) / 10, 1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

/** How long something took: "12 ms", "0.4 s", "31 s". */
export function took(ms: number): string {
  if (ms < 100) return `${figure(ms, ms < 10 ? 1 : 0)} ms`;
  return ms < 9950 ? `${figure(ms / 1000, 1)} s` : `${figure(ms / 1000)} s`;
}

const two = (value: number): string => String(value).padStart(2, "0");
const dayAndMonth = new Intl.DateTimeFormat(language === "de" ? locale : "en-GB", { day: "numeric", month: "short" });

/** "14:31:52", in the reader's own time zone. */
export function clockTime(ms: number): string {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** "14:31:52" for today, else "18 Nov". */
export function shortTime(ms: number, nowMs: number): string {
  const at = new Date(ms);
  return at.toDateString() === new Date(nowMs).toDateString() ? clockTime(ms) : day(ms);
}

/** "18 Nov" */
export const day = (ms: number): string => dayAndMonth.format(ms).replace("Sept", "Sep");

/** "18 Nov 2026, 14:31:52" */
export function fullTime(ms: number): string {
  return `${day(ms)} ${new Date(ms).getFullYear()}, ${clockTime(ms)}`;
}

/** "1 device", "3 devices" */
export function count(n: number, one: string, many = `${one}s`): string {
  return marked(`${figure(n)} ${noun(n, one, many)}`);
}

/** What the server says begins in lower case, for the log and the command line; here it is a sentence of its own.
 * A first word that is a name (libcuda.so.1, cuInit, exogpu) stays as it is. Empty for nothing. */
export function sentence(text: string | null): string {
  if (!text) return "";
  const start = text.replace(/^(?!exogpu\b|lib(?!rar))[a-z](?=[a-z'-]*(?:[\s,;:]|\.?$))/, (letter) => letter.toUpperCase());
  return /[.!?:]$/.test(start) ? start : `${start}.`;
}
