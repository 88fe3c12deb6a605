/* How hot the device will be: what the server foresees, in words. The curve is drawn behind the temperature's. */
import { useEffect, useState } from "preact/hooks";
import { readForecast } from "../../command/forecast";
import type { ThermalForecast } from "../../lib/api.gen";
import { age, figure, sentence } from "../../lib/format";
import { isLive, isSystem } from "../../state/select";
import type { DeviceEntry } from "../../state/state";
import { useApp } from "../app-context";
import { Fact, MarkIcon, Panel } from "../parts";

export const FORECAST_S = 300;
const AGAIN_MS = 2000;

/** The newest forecast, asked for again and again while somebody looks. */
export function useForecast(id: string): ThermalForecast | null {
  const { state, server } = useApp();
  const [forecast, setForecast] = useState<ThermalForecast | null>(null);
  const live = isLive(state.value);
  useEffect(() => {
    setForecast(null);
    if (!live) return;
    let wanted = true;
    const ask = async (): Promise<void> => {
      if (document.hidden) return;
      const answer = await readForecast(server, id, FORECAST_S);
      if (wanted) setForecast(answer);
    };
    void ask();
    const timer = setInterval(() => void ask(), AGAIN_MS);
    return () => {
      wanted = false;
      clearInterval(timer);
    };
  }, [id, live]);
  return forecast;
}

const celsius = (value: number | null): string | null => (value === null ? null : `${figure(value)} °C`);

const pointAt = (forecast: ThermalForecast, inS: number): string | null => {
  const point = forecast.points.find((one) => one.in_s >= inS);
  return point ? `${figure(point.celsius)} °C, from ${figure(point.low_celsius)} to ${figure(point.high_celsius)}` : null;
};

export function ForecastPanel({ entry, forecast }: { entry: DeviceEntry; forecast: ThermalForecast | null }) {
  if (!forecast) return null;
  const word = isSystem(entry.record) ? "CPU" : "card";
  if (forecast.state !== "ready")
    return (
      <Panel title="Heat ahead">
        <p class="panel-body quiet">
          {forecast.state === "learning" ? "No forecast yet. " : "No forecast. "}
          {sentence(forecast.state_reason)}
        </p>
      </Panel>
    );
  const { throttles_in_s: inS, limit_celsius: limit, sustainable_watts: watts, target_celsius: target } = forecast;
  return (
    <Panel title="Heat ahead" aside={<span class="small faint">at {figure(forecast.power_watts ?? 0)} W</span>}>
      <dl class="facts panel-body">
        <Fact name="In 1 min">{pointAt(forecast, 60)}</Fact>
        <Fact name="In 5 min">{pointAt(forecast, FORECAST_S)}</Fact>
        <Fact name="Slowdown">{limit !== null && `${figure(limit)} °C, reported by the ${word}`}</Fact>
        <Fact name="Reached in">
          {limit !== null &&
            (inS === null ? (
              "not reached"
            ) : (
              <span class={forecast.warns ? "warm" : ""}>
                {forecast.warns && <MarkIcon mark="throttled" class="mini" />} {age(inS * 1000)}
              </span>
            ))}
        </Fact>
        {forecast.acts !== "nothing" && (
          <Fact name="Held back">
            <span class="warm">
              <MarkIcon mark="throttled" class="mini" />{" "}
              {forecast.acts === "pause" ? "models on it pause" : `models on it get ${forecast.work_percent} % of the time`}
            </span>
          </Fact>
        )}
        <Fact name="For ever">{watts !== null && target !== null && `${figure(watts)} W hold ${figure(target)} °C`}</Fact>
        <Fact name="Air">{celsius(forecast.ambient_celsius)}</Fact>
        <Fact name="Error">
          {forecast.error_celsius !== null && `${figure(forecast.error_celsius, 1)} °C on average, 1 min ahead`}
        </Fact>
      </dl>
    </Panel>
  );
}
