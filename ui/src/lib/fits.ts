/* Whether a thing fits what is typed into a filter. */

/** Does every word of the filter occur somewhere in what is said about the thing? */
export function fits(filter: string, said: readonly (string | null | undefined)[]): boolean {
  const text = said.join(" ").toLowerCase();
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
