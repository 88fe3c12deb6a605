/* Branches of a conversation. Its turns stand in the order in which they came; each follows the one before it, or the
 * one that `after` names. What is shown are the turns from the beginning to `leaf`. Nothing that was said is changed: an
 * edited question, or another answer, is one more turn after the same one. Pure. */
import type { Conversation, Turn } from "../chat";

/** A place in the list of turns; -1: before the first. */
export type Place = number;

export const placeBefore = (turns: readonly Turn[], at: Place): Place => turns[at]!.after ?? at - 1;

/** The places from the beginning to `at`. */
export function pathTo(turns: readonly Turn[], at: Place): Place[] {
  const path: Place[] = [];
  for (let place = at; place >= 0; place = placeBefore(turns, place)) path.push(place);
  return path.reverse();
}

export const leafOf = ({ turns, leaf }: Conversation): Place => leaf ?? turns.length - 1;
export const shownPath = (one: Conversation): Place[] => pathTo(one.turns, leafOf(one));
export const turnsAt = (turns: readonly Turn[], path: readonly Place[]): Turn[] => path.map((place) => turns[place]!);

/** What follows each place, in the order in which it came. */
export function followers(turns: readonly Turn[]): ReadonlyMap<Place, readonly Place[]> {
  const all = new Map<Place, Place[]>();
  turns.forEach((_, at) => {
    const before = placeBefore(turns, at);
    const others = all.get(before);
    if (others) others.push(at);
    else all.set(before, [at]);
  });
  return all;
}

/** The conversation with one more turn after `before`, which is shown. */
export function grow(one: Conversation, before: Place, turn: Turn): Conversation {
  const { leaf: _, ...rest } = one;
  const { after: __, ...said } = turn;
  const next = before === one.turns.length - 1 ? said : { ...said, after: before };
  return { ...rest, turns: [...one.turns, next] };
}

/** The conversation with the branch of this turn shown, to its newest end. */
export function showBranch(one: Conversation, at: Place): Conversation {
  const next = followers(one.turns);
  let leaf = at;
  for (let more = next.get(leaf); more; more = next.get(leaf)) leaf = more.at(-1)!;
  const { leaf: _, ...rest } = one;
  return leaf === one.turns.length - 1 ? rest : { ...rest, leaf };
}
