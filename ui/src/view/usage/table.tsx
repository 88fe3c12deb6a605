/* The rows of usage as a table, and why there is no energy where there is none. */
import type { ComponentChildren } from "preact";
import type { By } from "../../command/usage";
import type { UsageRow } from "../../lib/api.gen";
import { type Quantity, figure } from "../../lib/format";
import { deviceHref, modelHref } from "../../lib/route";
import { type Subjects, type Sum, cost, deviceTime, energy, measured, subjectOf, sumOf } from "../../state/usage";
import { t } from "../../text/text";

const captions: Record<By, string> = { token: t`Usage by token`, model: t`Usage by model`, device: t`Usage by device` };
const heads: Record<By, string> = { token: t`Token`, model: t`Model`, device: t`Device` };

const Amount = ({ of }: { of: Quantity | null }) =>
  of ? (
    <>
      {of.value} <span class="unit">{of.unit}</span>
    </>
  ) : (
    <span class="faint small">{t`not reported`}</span>
  );

function Name({ row, by, known }: { row: UsageRow; by: By; known: Subjects }) {
  const { name, link, note } = subjectOf(row, by, known);
  return (
    <span title={row.key === name ? undefined : row.key} translate={false}>
      {link ? (
        <a class="link" href={by === "model" ? modelHref(row.key) : deviceHref(row.key)}>
          {name}
        </a>
      ) : (
        name
      )}
      {note !== null && <span class="faint small"> {note}</span>}
    </span>
  );
}

const Cell = ({ name, title, children }: { name: string; title?: string | undefined; children: ComponentChildren }) => (
  <td data-name={name} class="num" title={title}>
    <span>{children}</span>
  </td>
);

/** The cells of a row behind its name. `counts`: whether its requests and tokens can be told. */
function Figures({ of, by, price, counts = true }: { of: Sum; by: By; price: number | null; counts?: boolean }) {
  const integrated = of.energy_source === "integrated" && of.energy_joules !== null;
  const told = (figures: ComponentChildren) => (counts ? figures : <span class="faint">–</span>);
  const idle = energy(of.idle_joules);
  return (
    <>
      <Cell name={t`Requests`}>{told(figure(of.requests))}</Cell>
      <Cell name={t`Prompt tokens`}>
        {told(figure(of.prompt_tokens))}
        {counts && of.cached_tokens > 0 && <span class="faint small">{" "}{t`(${figure(of.cached_tokens)} cached)`}</span>}
      </Cell>
      <Cell name={t`Generated`}>{told(figure(of.completion_tokens))}</Cell>
      <Cell name={t`Device time`}>
        <Amount of={deviceTime(of.device_s)} />
      </Cell>
      <Cell name={t`Energy`} title={integrated ? t`power times time` : undefined}>
        {of.partly && t`at least `}
        {integrated && "~"}
        <Amount of={energy(of.energy_joules)} />
      </Cell>
      {by === "device" && (
        <Cell name={t`Idle`}>
          {of.partly && idle && t`at least `}
          <Amount of={idle} />
        </Cell>
      )}
      <Cell name={t`Cost`}>
        {of.partly && price !== null && t`at least `}
        {cost(of.energy_joules, price) ?? <span class="faint">–</span>}
      </Cell>
    </>
  );
}

interface Shown {
  readonly rows: readonly UsageRow[];
  readonly by: By;
  readonly price: number | null;
  readonly known: Subjects;
}

/** All rows together. Several devices compute one request, so by device requests and tokens have no sum. */
function All({ rows, by, price }: Omit<Shown, "known">) {
  return (
    <tfoot>
      <tr>
        <th scope="row">{t`All`}</th>
        <Figures of={sumOf(rows)} by={by} price={price} counts={by !== "device"} />
      </tr>
    </tfoot>
  );
}

export function UsageTable({ rows, by, price, known }: Shown) {
  const { any, integrated, partly } = measured(rows);
  if (rows.length === 0)
    return (
      <div class="empty">
        <h2>{t`Nothing was used in this time`}</h2>
        <p>{t`Each request to a model is counted here when it ends, whatever API it came by.`}</p>
      </div>
    );
  return (
    <>
      <div class="table-wrap">
        <table class="list cert-list usage-list">
          <caption class="sr">{captions[by]}</caption>
          <thead>
            <tr>
              <th scope="col">{heads[by]}</th>
              <th scope="col" class="num">
                {t`Requests`}
              </th>
              <th scope="col" class="num w-prompt">
                {t`Prompt tokens`}
              </th>
              <th scope="col" class="num">
                {t`Generated`}
              </th>
              <th scope="col" class="num">
                {t`Device time`}
              </th>
              <th scope="col" class="num">
                {t`Energy`}
              </th>
              {by === "device" && (
                <th scope="col" class="num">
                  {t`Idle`}
                </th>
              )}
              <th scope="col" class="num">
                {t`Cost`}
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.key}>
                <th scope="row">
                  <Name row={row} by={by} known={known} />
                </th>
                <Figures of={{ ...row, partly: false }} by={by} price={price} />
              </tr>
            ))}
          </tbody>
          {rows.length > 1 && <All rows={rows} by={by} price={price} />}
        </table>
      </div>
      {!any && (
        <p class="panel-body quiet small">
          {t`Energy is not reported: no device that worked here has a counter of energy or a reading of its power. GPUs have them through their drivers. A processor's can be read only where its node may read /sys/class/powercap, mostly as root, and not in a virtual machine.`}
        </p>
      )}
      {any && (
        <p class="panel-body quiet small">
          {by === "device"
            ? t`Energy is what a device drew above idle, for requests and other work; idle is what it draws when idle.`
            : t`Energy is what devices drew for requests above idle.`}
          {integrated && t` ~: power times time, because a device has no counter of energy.`}
          {partly && t` At least: some rows report no energy, and are left out of the sum.`}
        </p>
      )}
    </>
  );
}
