/* How many requests of models with layers in browsers are checked. */
import { useEffect, useState } from "preact/hooks";
import { readCheckShare, setCheckShare } from "../../command/access";
import type { Refusal } from "../../command/tried";
import { checkShares, shareText } from "../../state/checks";
import { isLive, obstacle } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { RefusalNote } from "../parts";

export function CheckShare() {
  const { state, server } = useApp();
  const [percent, setPercent] = useState<number | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const live = isLive(state.value);
  const take = (answer: number | Refusal): void => {
    if (typeof answer === "number") setPercent(answer);
    setRefusal(typeof answer === "number" ? null : answer);
  };
  useEffect(() => {
    let wanted = live;
    if (live) void readCheckShare(server).then((answer) => wanted && take(answer));
    return () => {
      wanted = false;
    };
  }, [live]);
  const why = obstacle(state.value);
  return (
    <>
      {percent !== null && (
        <label class="small">
          {t`Results checked on a trusted device:`}{" "}
          <select
            aria-label={t`requests that are checked`}
            disabled={why !== null}
            title={why ?? undefined}
            value={percent}
            onChange={(event) => void setCheckShare(server, Number(event.currentTarget.value)).then(take)}
          >
            {checkShares(percent).map((one) => (
              <option key={one} value={one}>
                {shareText(one)}
              </option>
            ))}
          </select>
        </label>
      )}
      <RefusalNote refusal={refusal} />
    </>
  );
}
