/* The server's own folders, as far as it allows: model files that lie there are added where they are. */
import { useState } from "preact/hooks";
import { type Folder, addModel, browse, isRefused } from "../../command/models";
import type { Refusal } from "../../command/tried";
import { count, memory } from "../../lib/format";
import { crumbs } from "../../state/models";
import { obstacle } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Command } from "../command-line";
import { Figure, Panel, RefusalNote } from "../parts";

export function BrowsePanel() {
  const { state, server } = useApp();
  const [folder, setFolder] = useState<Folder | null>(null);
  const [allowed, setAllowed] = useState<readonly string[]>([]);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const why = obstacle(state.value);
  const open = async (dir: string | null): Promise<void> => {
    setBusy(true);
    const found = await browse(server, dir);
    setBusy(false);
    setRefusal(isRefused(found) ? found : null);
    if (isRefused(found)) return;
    setFolder(found);
    if (dir === null) setAllowed(found.dirs.map((one) => one.path));
  };
  return (
    <Panel title={t`This server's folders`}>
      {folder === null ? (
        <div class="panel-body browse-body">
          <button class="btn" type="button" disabled={busy || why !== null} title={why ?? undefined} onClick={() => void open(null)}>
            {t`Browse this server's folders`}
          </button>
          <RefusalNote refusal={refusal} />
        </div>
      ) : allowed.length === 0 ? (
        <div class="panel-body browse-body">
          <p>{t`No folder of the server's machine may be browsed. Whoever starts the server allows some:`}</p>
          <Command text="exogpu serve --model-dir /srv/models" />
        </div>
      ) : (
        <>
          <nav class="panel-body browse-path" aria-label={t`Folder`}>
            <button class="btn small-btn" type="button" disabled={busy} onClick={() => void open(null)}>
              {t`All folders`}
            </button>
            {folder.dir !== null &&
              crumbs(allowed, folder.dir).map((one) => (
                <button
                  key={one.path}
                  class="btn small-btn"
                  type="button"
                  disabled={busy}
                  aria-current={one.path === folder.dir ? "location" : undefined}
                  onClick={() => void open(one.path)}
                >
                  {one.name}
                </button>
              ))}
          </nav>
          <RefusalNote refusal={refusal} />
          <Entries folder={folder} open={(dir) => void open(dir)} />
        </>
      )}
    </Panel>
  );
}

function Entries({ folder, open }: { folder: Folder; open: (dir: string) => void }) {
  if (folder.dirs.length + folder.files.length === 0)
    return <p class="panel-body quiet">{t`There are neither folders nor .gguf files here.`}</p>;
  return (
    <ul class="rows">
      {folder.dirs.map((one) => (
        <li key={one.path} class="browse-row">
          <button class="btn small-btn" type="button" aria-label={t`Open ${one.name}`} onClick={() => open(one.path)}>
            {one.name}/
          </button>
        </li>
      ))}
      {folder.files.map((one) => (
        <FileRow key={one.path} file={one} />
      ))}
      {folder.more && <li class="quiet small">{t`The folder has more than is listed here. Add a file by its path.`}</li>}
    </ul>
  );
}

function FileRow({ file }: { file: Folder["files"][number] }) {
  const { state, server } = useApp();
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const here = Object.values(state.value.models).some((model) => model.source === file.path);
  const why = obstacle(state.value);
  const add = async (): Promise<void> => {
    setBusy(true);
    setRefusal(await addModel(server, file.path, null));
    setBusy(false);
  };
  return (
    <li class="browse-row">
      <span class="browse-name">
        {file.name}
        {file.parts > 1 && <span class="small quiet">{" "}{t`and ${count(file.parts - 1, "further part")}`}</span>}
      </span>
      <span class="num">
        <Figure {...memory(file.bytes)} />
      </span>
      <button
        class="btn small-btn"
        type="button"
        disabled={here || busy || why !== null}
        title={why ?? undefined}
        aria-label={t`Add ${file.name}`}
        onClick={() => void add()}
      >
        {here ? t`Added` : busy ? t`Adding` : t`Add`}
      </button>
      <RefusalNote refusal={refusal} />
    </li>
  );
}
