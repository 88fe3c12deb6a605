/* What the browser tells of this device while it lends: battery, charging, whether the page is in front, and how hard the
 * processor is pressed. What it does not tell is null. */
import type { Facts, Readings } from "./messages";

interface Battery extends EventTarget {
  level: number;
  charging: boolean;
  chargingTime: number;
}

interface PressureRecord {
  state: Readings["pressure"];
}

declare global {
  interface Navigator {
    getBattery?(): Promise<Battery>;
    userAgentData?: { platform?: string };
  }
  interface Window {
    PressureObserver?: new (changed: (records: PressureRecord[]) => void) => {
      observe(source: "cpu", options?: { sampleInterval: number }): Promise<void>;
      disconnect(): void;
    };
  }
}

const PRESSURE_MS = 5000;

/** A device without a battery is told as a full one that charges, so that this is no reading of a level. */
const levelOf = ({ level, charging, chargingTime }: Battery): number | null =>
  charging && level === 1 && chargingTime === 0 ? null : Math.round(level * 100);

/** Calls `changed` now and whenever one of them changes; returns what ends that. */
export function watchReadings(changed: (readings: Readings) => void): () => void {
  const readings: Readings = { battery_percent: null, charging: null, visible: !document.hidden, pressure: null };
  const ends: (() => void)[] = [];
  let over = false;
  const tell = (): void => {
    if (!over) changed({ ...readings });
  };
  const listen = (target: EventTarget, name: string, act: () => void): void => {
    target.addEventListener(name, act);
    ends.push(() => target.removeEventListener(name, act));
  };
  listen(document, "visibilitychange", () => {
    readings.visible = !document.hidden;
    tell();
  });
  navigator.getBattery?.().then((battery) => {
    const read = (): void => {
      readings.battery_percent = levelOf(battery);
      readings.charging = battery.charging;
      tell();
    };
    listen(battery, "levelchange", read);
    listen(battery, "chargingchange", read);
    read();
  }, ignore);
  if (window.PressureObserver) {
    const observer = new window.PressureObserver((records) => {
      readings.pressure = records.at(-1)?.state ?? null;
      tell();
    });
    observer.observe("cpu", { sampleInterval: PRESSURE_MS }).catch(ignore);
    ends.push(() => observer.disconnect());
  }
  tell();
  return () => {
    over = true;
    for (const end of ends) end();
  };
}

/** A browser may have the interface and refuse to use it: then the reading stays null. */
function ignore(): void {}

const SYSTEMS: readonly (readonly [RegExp, string])[] = [
  [/iPhone|iPad|iPod/, "iOS"], [/Android/, "Android"], [/CrOS/, "ChromeOS"], [/Windows/, "Windows"], [/Mac OS X/, "macOS"], [/Linux/, "Linux"],
];

/** As the browser says of itself. An iPad says that it is a Mac; no Mac has a touch screen. */
export function systemName(userAgent: string, touchPoints: number): string | null {
  if (/Mac OS X/.test(userAgent) && touchPoints > 1) return "iOS";
  return SYSTEMS.find(([pattern]) => pattern.test(userAgent))?.[1] ?? null;
}

export function browserName(userAgent: string): string | null {
  const found = /(Firefox|Edg|OPR|SamsungBrowser|Chrome|Safari)\//.exec(
    ["Edg/", "OPR/", "SamsungBrowser/", "Firefox/", "Chrome/", "Safari/"].find((name) => userAgent.includes(name)) ?? "",
  );
  const names: Record<string, string> = { Edg: "Edge", OPR: "Opera", SamsungBrowser: "Samsung Internet" };
  return found ? (names[found[1]!] ?? found[1]!) : null;
}

/** The server's version, which is that of this page. Rejects if the server does not answer. */
export async function readFacts(): Promise<Facts> {
  const health = (await (await fetch("/healthz")).json()) as { version?: unknown };
  return {
    os: systemName(navigator.userAgent, navigator.maxTouchPoints),
    cpu_threads: navigator.hardwareConcurrency || null,
    version: typeof health.version === "string" ? health.version.slice(0, 64) : "",
  };
}
