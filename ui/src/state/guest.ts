/* What somebody sees who may only use models: which there are, whether each answers, and what happens to it. Pure. */
import type { ChatModel, ChatStatus, Login } from "../lib/api.gen";
import { clockTime } from "../lib/format";
import { t } from "../text/text";

/** May this login use models, and see nothing else? */
export const isGuest = (login: Login | null): boolean =>
  login !== null && login.scopes.includes("infer") && !login.scopes.includes("admin") && !login.scopes.includes("observe");

/** The models that answer a conversation, those that can now before the others. */
export const guestModels = ({ models }: ChatStatus): ChatModel[] => {
  const rank = ({ state }: ChatModel): number => (state === "ready" ? 0 : state === "not_loaded" ? 2 : 1);
  return models.filter((one) => one.task === "text").sort((a, b) => rank(a) - rank(b));
};

/** The model that is talked to: the one that was chosen, whatever happens to it, as long as it is there. */
export const guestModel = (status: ChatStatus, chosen: string | null): ChatModel | null => {
  const all = guestModels(status);
  return all.find((one) => one.name === chosen) ?? all[0] ?? null;
};

const words: Record<ChatModel["state"], string | null> = {
  ready: null,
  leaving: t`about to move`,
  moving: t`moving`,
  paused: t`paused`,
  starting: t`being loaded`,
  not_loaded: t`not loaded`,
};
/** "words (moving)" */
export const guestWord = ({ name, state }: ChatModel): string => (words[state] ? `${name} (${words[state]})` : name);

/** Does a message that is sent now get an answer, at once or later? */
export const takesMessages = ({ state }: ChatModel, loadOnDemand: boolean): boolean =>
  state === "ready" || state === "moving" || state === "paused" || (loadOnDemand && (state === "starting" || state === "not_loaded"));

/** What happens to the model, in the place where its answer comes; null: it answers. */
export function guestText({ name, state, until }: ChatModel, loadOnDemand: boolean): string | null {
  const give = until ? ` ${t`What waits is given up at ${clockTime(Date.parse(until))} unless it gets further.`}` : "";
  switch (state) {
    case "ready":
      return null;
    case "leaving":
      return t`${name} is about to move or to stop. The answer that is being written is finished first; new messages have to wait.`;
    case "moving":
      return t`${name} is moving; the answer goes on where it stopped. No text is lost.${give}`;
    case "paused":
      return t`${name} has no place to run at the moment. Answers go on where they stopped once it has one.${give}`;
    case "starting":
      return loadOnDemand ? t`${name} is being loaded. A message is answered once it is.` : t`${name} is being loaded. You can write once it is.`;
    case "not_loaded":
      return loadOnDemand ? t`${name} is not loaded. Your first message loads it, which takes a while.` : t`${name} is not loaded. Ask an admin to load it.`;
  }
}
