/* The history of a device as CSV, to be saved. */
import { cell } from "../lib/csv";
import { CallError } from "../net/calls";
import type { Server } from "../net/socket";
import type { Between, History } from "./history";
import type { Refusal } from "./tried";

const DAY_MS = 86_400_000; // 1,440 minutes; one answer has 2,000 rows
/** More than all minutes of 30 days: a page that holds a file in its memory needs an end. */
export const ROWS_MOST = 50_000;

export interface Exported {
  readonly csv: string;
  /** The time that the file has no room for; null: it has everything. */
  readonly rest: Between | null;
}

/** One line for each step, its times in UTC; what is not reported is empty, and a step without readings has no line. */
export function csvOf({ columns, rows }: Pick<History, "columns" | "rows">): string {
  return `${[columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

/** All that is kept of a time: a line for each minute, or as sampled if it begins in the last ten minutes. */
export async function exportHistory(
  server: Server,
  deviceId: string,
  { from, to }: Between,
  most = ROWS_MOST,
): Promise<Exported | Refusal> {
  let columns: string[] = [];
  const rows: History["rows"] = [];
  let last = -Infinity;
  let rest: Between | null = null;
  try {
    for (let at = from; at < to && !rest; at += DAY_MS) {
      const span = { from: new Date(at).toISOString(), to: new Date(Math.min(at + DAY_MS, to)).toISOString() };
      const part = await server.call("telemetry.history", { device_id: deviceId, ...span, step_s: 0 });
      columns = part.columns;
      const time = columns.indexOf("at");
      for (const row of part.rows) {
        const when = Date.parse(String(row[time]));
        if (!(when > last)) continue; // no date, or a step that the day before has, too
        if (rows.length === most) {
          rest = { from: when, to };
          break;
        }
        last = when;
        rows.push(row);
      }
    }
    return { csv: csvOf({ columns, rows }), rest };
  } catch (error) {
    if (error instanceof CallError) return { what: error.message, hint: error.hint };
    throw error;
  }
}

/** "exogpu-dev_1-2026-11-20T1431.csv": by the end of its time. */
export const fileName = (deviceId: string, { to }: Between): string =>
  `exogpu-${deviceId.replace(/[^\w.-]/g, "-")}-${new Date(to).toISOString().slice(0, 16).replace(":", "")}.csv`;

/** The command that prints a time of a device on any machine. */
export const historyCommand = (deviceId: string, { from, to }: Between): string =>
  `exogpu history ${deviceId} --from ${new Date(from).toISOString()} --to ${new Date(to).toISOString()}`;
