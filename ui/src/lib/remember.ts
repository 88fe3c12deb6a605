/* Caches the last result of a computation. */

/** A pure function that remembers its last answer: several views ask the same of one state. */
export function remember<A extends object, R>(compute: (argument: A) => R): (argument: A) => R {
  let last: { argument: A; result: R } | null = null;
  return (argument) => {
    if (last?.argument !== argument) last = { argument, result: compute(argument) };
    return last.result;
  };
}
