// Numbers that depend on what a page shows.

// P-values adjusted for their number (Y. Benjamini and Y. Hochberg, JRSS B 57, 1995).
export function falseDiscoveryRates(values) {
  const order = values.map((value, index) => [value, index]).sort(([one], [other]) => other - one)
  const adjusted = new Array(values.length)
  let least = 1
  order.forEach(([value, index], fromLast) => {
    least = Math.min(least, (value * values.length) / (values.length - fromLast))
    adjusted[index] = least
  })
  return adjusted
}

// The places that each interval may have in a ranking: 1 + the number that are surely better, and those that may be.
export function ranks(intervals, isRising = false) {
  const ends = intervals.map(({ low, high }) => (isRising ? [-high, -low] : [low, high]))
  const lows = ends.map(([low]) => low).sort((one, other) => one - other)
  const highs = ends.map(([, high]) => high).sort((one, other) => one - other)
  return ends.map(([low, high]) => ({
    first: 1 + lows.length - firstPlace(lows, value => value > high),
    last: intervals.length - firstPlace(highs, value => value >= low),
  }))
}

// The first place of a sorted list where a condition holds.
function firstPlace(sorted, holds) {
  let [low, high] = [0, sorted.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (holds(sorted[middle])) high = middle
    else low = middle + 1
  }
  return low
}

// The set with the most questions among [{ data, n }], of equally large ones the most frequent, and then the first.
export function largestSet(sets) {
  const found = new Map()
  for (const { data, n } of sets) {
    const { most, count } = found.get(data) ?? { most: 0, count: 0 }
    found.set(data, { most: Math.max(most, n), count: count + 1 })
  }
  const [largest] = [...found].sort(([, one], [, other]) => other.most - one.most || other.count - one.count)
  return largest && { data: largest[0], n: largest[1].most }
}

// Whether a row of a ranking comes before another: ranked ones first, then those on other questions, the larger sets
// first, and last those without a value. Each is { isRanked, n, value }. Values rise or fall to the better.
export function beforeInRanking(one, other, falls = false) {
  const group = ({ isRanked, value }) => (isRanked ? 0 : typeof value === 'number' ? 1 : 2)
  if (group(one) !== group(other)) return group(one) - group(other)
  if (group(one) === 2) return 0
  return (one.isRanked ? 0 : other.n - one.n) || (falls ? one.value - other.value : other.value - one.value)
}
