/* Overview with something missing: no node, or no GPU. Says what would fill it and what to do. */
import { nodeHref } from "../../lib/route";
import { mayManage } from "../../state/models";
import { isSoftware, sortedNodes } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Command } from "../command-line";
import { Panel } from "../parts";
import { LazyCatalog } from "../models/lazy-catalog";
import { LibraryList } from "../node/libraries";

/** In the first seconds after the server's start. */
function Discovering() {
  return (
    <section class="panel empty" aria-label={t`Looking for devices`}>
      <h2>{t`Still looking for devices`}</h2>
      <p>{t`The server has just started. This machine's devices are found and verified one by one, and show here at once.`}</p>
    </section>
  );
}

export function NoNode() {
  const { server, discovering } = useApp().state.value;
  const { tls } = server ?? { tls: false };
  if (discovering) return <Discovering />;
  return (
    <section class="panel empty" aria-label={t`No machine yet`}>
      <h2>{t`No machine yet`}</h2>
      <p>
        {t`The server runs, but no node has come up on its machine. It normally starts one by itself within a second: wait a moment.`}
      </p>
      <p>{t`If it was started with --no-local-node, start it without, and its own devices show here:`}</p>
      <Command text={tls ? "exogpu serve --lan" : "exogpu serve"} />
      {tls && (
        <>
          <p>{t`On another machine of this network, this command finds the server and asks to join:`}</p>
          <Command text="exogpu node" />
        </>
      )}
    </section>
  );
}

/** Machines run on their CPU alone: why, from the state of the libraries that GPUs need. */
export function NoGpu() {
  const { state } = useApp();
  const nodes = sortedNodes(state.value).filter(({ record }) => record.state !== "offline" && record.state !== "pending");
  const helpful = nodes.filter((one) => one.record.libraries.length > 0);
  if (nodes.length === 0 || state.value.discovering) return null;
  const soft = Object.values(state.value.devices).some((one) => isSoftware(one.record));
  return (
    <Panel title={t`No GPU found`} class="no-gpu">
      <div class="panel-body">
        <p class="quiet">
          {soft && `${t`Only a software renderer answers as a GPU.`} `}
          {t`Everything runs on the CPU, which works, but slower. A GPU whose driver is installed shows here within 5 seconds.`}
        </p>
        {helpful.length > 0 && (
          <details>
            <summary class="small">{t`What was looked for`}</summary>
            <p class="small quiet">{t`A missing library matters only for a card that needs it.`}</p>
            {helpful.map(({ record }) => (
              <div key={record.node_id}>
                {nodes.length > 1 && (
                  <a class="label" href={nodeHref(record.node_id)}>
                    {record.name}
                  </a>
                )}
                <LibraryList libraries={record.libraries} />
              </div>
            ))}
          </details>
        )}
      </div>
    </Panel>
  );
}

/** A few models to begin with, until one is loaded. */
export function FirstModel() {
  const { nodes, instances, login } = useApp().state.value;
  if (Object.keys(nodes).length === 0 || Object.keys(instances).length > 0 || !mayManage(login)) return null;
  return <LazyCatalog most={3} />;
}

/** The next steps while there is no model, for those who may add one. */
export function NextSteps() {
  const { models, login } = useApp().state.value;
  if (Object.keys(models).length > 0 || !mayManage(login)) return null;
  return (
    <Panel title={t`Next steps`} class="next-panel">
      <ul class="rows">
        <li class="next-step">
          <p>
            <b>{t`Add another model`}</b> <span class="quiet">{t`a GGUF file of this machine, or one from Hugging Face or the Ollama library`}</span>
          </p>
          <a class="btn small-btn" href="#/models">
            {t`Models`}
          </a>
        </li>
        <li class="next-step">
          <p>
            <b>{t`Add a machine`}</b> <span class="quiet">{t`its devices show here within seconds after you let it in`}</span>
          </p>
          <a class="btn small-btn" href="#/access">
            {t`Access`}
          </a>
        </li>
      </ul>
    </Panel>
  );
}
