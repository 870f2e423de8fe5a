// The evidence behind the scores of one question: errors of samples, and what follows from them.

import { closest, comparisons } from './answers.js'

const SUBSETS = 200
const MOST_SIZES = 40
const MOST_COMPARISONS = 20
const SIGNS = { own: -1 }

// A cell's value of a term in each sample. A term that is the same for all images or texts has one entry there.
function valuesOf(term, image, text) {
  const row = term[Math.min(image, term.length - 1)]
  return row[Math.min(text, row.length - 1)]
}

// Cells of a question with the errors of their samples, terms, and scores by sample; null where a race took no sample.
// weights: of the samples, with the mean 1.
export function cellsOf({ images, texts, samples, terms }, weights) {
  const names = Object.keys(terms)
  return Array.from({ length: images * texts }, (_, cell) => {
    const [image, text] = [Math.floor(cell / texts), cell % texts]
    const values = Object.fromEntries(names.map(name => [name, valuesOf(terms[name], image, text)]))
    const scores = Array.from({ length: samples }, (_, sample) => {
      let sum = 0
      for (const name of names) {
        if (values[name][sample] === null) return null
        sum += (SIGNS[name] ?? 1) * values[name][sample]
      }
      return sum * (weights?.[sample] ?? 1)
    })
    return { cell, errors: values.own, values, scores, taken: scores.filter(value => value !== null).length }
  })
}

export function mean(values) {
  const known = values.filter(value => value !== null)
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null
}

export const less = (one, other) => one.map((value, sample) => (value === null || other[sample] === null ? null : value - other[sample]))

// Sums in another order differ by this much, relative to the largest error.
const isNear = (one, other, size) => Math.abs(one - other) <= 1e-9 * size
const sizeOf = cells => cells.flatMap(({ errors }) => errors).reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 1)

// Whether the stored scores are the means of the samples' scores.
export function isReproduced(asked, cells) {
  const flat = asked.scores.flat()
  const size = sizeOf(cells)
  return cells.every(({ cell, scores }) => isNear(mean(scores), flat[cell], size))
}

// Whether the recorded samples of a race are those that decided this question: then they give the stored scores, which are
// the winner's mean, and how far the others are behind it on common samples. Other questions may take more of a pair.
export function isOfRace(asked, cells) {
  const flat = asked.scores.flat()
  const size = sizeOf(cells)
  const winner = cells[flat.indexOf(Math.max(...flat))]
  return isNear(mean(winner.scores), flat[winner.cell], size) && cells.every(({ cell, scores }) =>
    isNear(mean(scores), flat[cell], size) || isNear(mean(less(winner.scores, scores)), flat[winner.cell] - flat[cell], size))
}

// The comparisons of a question, those with the smallest margin first: { right, wrong, ahead: [a sample] }.
export function comparedCells(asked, metric, cells) {
  const flat = asked.scores.flat()
  return comparisons(asked, metric)
    .sort(([right, wrong], [one, other]) => flat[right] - flat[wrong] - (flat[one] - flat[other]))
    .slice(0, MOST_COMPARISONS)
    .map(([right, wrong]) => ({ right, wrong, ahead: less(cells[right].scores, cells[wrong].scores) }))
}

// Random numbers in [0, 1) that are the same each time (mulberry32).
function generator(state) {
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

// How often random subsets of the samples decide rightly: [{ samples, share }]; null where candidates differ in samples.
export function decisions(compared) {
  const total = compared[0]?.ahead.length ?? 0
  if (total < 2 || compared.some(({ ahead }) => ahead.includes(null))) return null
  const random = generator(0)
  const right = new Array(total).fill(0)
  const order = [...Array(total).keys()]
  for (let subset = 0; subset < SUBSETS; subset++) {
    for (let place = total - 1; place > 0; place--) {
      const other = Math.floor(random() * (place + 1))
      ;[order[place], order[other]] = [order[other], order[place]]
    }
    const sums = new Array(compared.length).fill(0)
    order.forEach((sample, place) => {
      let isRight = true
      for (let number = 0; number < sums.length; number++) {
        sums[number] += compared[number].ahead[sample]
        if (!(sums[number] > 0)) isRight = false
      }
      if (isRight) right[place] += 1
    })
  }
  const sizes = total <= MOST_SIZES ? [...Array(total).keys()] : [...new Set(Array.from({ length: MOST_SIZES }, (_, place) => Math.round((total - 1) * (place / (MOST_SIZES - 1)) ** 2)))]
  return sizes.map(place => ({ samples: place + 1, share: right[place] / SUBSETS }))
}

// Cells for figures: those compared first, then the best others.
export function shownCells(asked, metric, most) {
  const flat = asked.scores.flat()
  const near = closest(asked, metric)
  const rest = [...flat.keys()].sort((one, other) => flat[other] - flat[one])
  return [...new Set([...(near ? [near.right, near.wrong] : []), ...rest])].slice(0, most)
}
