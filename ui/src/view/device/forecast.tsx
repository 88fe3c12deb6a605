/* How hot the device will be: what the server foresees, in words. The curve is drawn behind the temperature's. */
import { useEffect, useState } from "preact/hooks";
import { type Foreseen, foresee, isFresh, nothingForeseen, readForecast } from "../../command/forecast";
import type { ThermalForecast } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { age, figure, sentence } from "../../lib/format";
import { isLive, isSystem } from "../../state/select";
import type { DeviceEntry } from "../../state/state";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Fact, MarkIcon, Panel } from "../parts";

export const FORECAST_S = 300;
const AGAIN_MS = 2000;

/** The newest forecast, asked for again and again while somebody looks. It stays while no other comes. */
export function useForecast(id: string): Foreseen {
  const { state, server } = useApp();
  const [foreseen, setForeseen] = useState<Foreseen>(nothingForeseen);
  const live = isLive(state.value);
  useEffect(() => setForeseen(nothingForeseen), [id]);
  useEffect(() => {
    if (!live) return;
    let wanted = true;
    let asking = false;
    const ask = async (): Promise<void> => {
      if (document.hidden || asking) return;
      asking = true;
      const answer = await readForecast(server, id, FORECAST_S).finally(() => (asking = false));
      if (wanted) setForeseen((before) => foresee(before, answer, Date.now()));
    };
    void ask();
    const timer = setInterval(() => void ask(), AGAIN_MS);
    return () => {
      wanted = false;
      clearInterval(timer);
    };
  }, [id, live]);
  return foreseen;
}

const celsius = (value: number | null): string | null => (value === null ? null : `${figure(value)} °C`);

const pointAt = (forecast: ThermalForecast, inS: number): string | null => {
  const point = forecast.points.find((one) => one.in_s >= inS);
  return point ? t`${figure(point.celsius)} °C, from ${figure(point.low_celsius)} to ${figure(point.high_celsius)}` : null;
};

/** Why it is not of this moment: its age, and what was said when another was asked for. */
function Late({ foreseen }: { foreseen: Foreseen }) {
  const { forecast, at, refusal } = foreseen;
  if (isFresh(foreseen, now.value)) return null;
  return (
    <div class="panel-body small" role="status">
      {forecast && (
        <p class="age">
          <MarkIcon mark="stale" />{" "}{t`This forecast is ${age(now.value - at)} old.`}
        </p>
      )}
      {refusal && (
        <p class="quiet">
          {t`${sentence(refusal.what)} ${sentence(refusal.hint)} The page asks again by itself.`}
        </p>
      )}
    </div>
  );
}

export function ForecastPanel({ entry, foreseen }: { entry: DeviceEntry; foreseen: Foreseen }) {
  const { forecast, refusal } = foreseen;
  const late = <Late foreseen={foreseen} />;
  if (!forecast) return refusal && <Panel title={t`Heat ahead`}>{late}</Panel>;
  if (forecast.state !== "ready")
    return (
      <Panel title={t`Heat ahead`}>
        <p class="panel-body quiet">
          {forecast.state === "learning" ? t`No forecast yet. ` : t`No forecast. `}
          {sentence(forecast.state_reason)}
        </p>
        {late}
      </Panel>
    );
  const { throttles_in_s: inS, limit_celsius: limit, sustainable_watts: watts, target_celsius: target } = forecast;
  return (
    <Panel title={t`Heat ahead`} aside={<span class="small faint">{t`at ${figure(forecast.power_watts ?? 0)} W`}</span>}>
      {late}
      <dl class="facts panel-body">
        <Fact name={t`In 1 min`}>{pointAt(forecast, 60)}</Fact>
        <Fact name={t`In 5 min`}>{pointAt(forecast, FORECAST_S)}</Fact>
        <Fact name={t`Slowdown`}>{limit !== null && (isSystem(entry.record) ? t`${figure(limit)} °C, reported by the CPU` : t`${figure(limit)} °C, reported by the card`)}</Fact>
        <Fact name={t`Reached in`}>
          {limit !== null &&
            (inS === null ? (
              t`not reached`
            ) : (
              <span class={forecast.warns ? "warm" : ""}>
                {forecast.warns && <MarkIcon mark="throttled" class="mini" />} {age(inS * 1000)}
              </span>
            ))}
        </Fact>
        {forecast.acts !== "nothing" && (
          <Fact name={t`Held back`}>
            <span class="warm">
              <MarkIcon mark="throttled" class="mini" />{" "}
              {forecast.acts === "pause" ? t`models on it pause` : t`models on it get ${forecast.work_percent} % of the time`}
            </span>
          </Fact>
        )}
        <Fact name={t`For ever`}>{watts !== null && target !== null && t`${figure(watts)} W hold ${figure(target)} °C`}</Fact>
        <Fact name={t`Air`}>{celsius(forecast.ambient_celsius)}</Fact>
        <Fact name={t`Error`}>
          {forecast.error_celsius !== null && t`${figure(forecast.error_celsius, 1)} °C on average, 1 min ahead`}
        </Fact>
      </dl>
    </Panel>
  );
}
