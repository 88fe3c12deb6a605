/* Selectors for the lines of the log page. Pure. */
import { t } from "../text/text";
import { type LogLine, LOG_MAX } from "./state";

export const LEVELS = ["error", "warning", "info"] as const;

export interface LogFilter {
  /** This and worse. */
  readonly level: (typeof LEVELS)[number];
  readonly text: string;
}

const words: Record<LogFilter["level"], string> = { error: t`errors`, warning: t`warnings and errors`, info: t`every level` };
export const levelWord = (level: LogFilter["level"]): string => words[level];
export const logLines = LOG_MAX;

const rank: Record<LogLine["level"], number> = { error: 0, warning: 1, info: 2, debug: 3 };

export function shownLog(lines: readonly LogLine[], { level, text }: LogFilter): readonly LogLine[] {
  const wanted = text.trim().toLowerCase();
  return lines.filter(
    (one) => rank[one.level] <= (level === "info" ? rank.debug : rank[level]) && `${one.node_name ?? ""} ${one.area}: ${one.text}`.toLowerCase().includes(wanted),
  );
}

/** Lines newest first: those that were heard, and before them what the server remembers, each once. */
export function withOlder(heard: readonly LogLine[], kept: readonly LogLine[]): readonly LogLine[] {
  const known = new Set(heard.map((one) => one.seq));
  const missing = kept.filter((one) => !known.has(one.seq));
  return missing.length === 0 ? heard : [...heard, ...missing].sort((a, b) => b.seq - a.seq).slice(0, LOG_MAX);
}
