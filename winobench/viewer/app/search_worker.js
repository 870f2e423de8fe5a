// Searches whole tables away from the page, so that typing stays smooth. Asked by search.js.

import { LISTED, asksSame, differ, margin, question, textOf, verdict } from './answers.js'
import * as source from './source.js'

const NEAR_ROWS = 400
const MOST_SIMILAR = 6
const made = new Map()

// A value that is computed once for a table. The tables of source.js are new where a file has changed.
function once(table, name, make) {
  const key = `${table.address} ${name}`
  if (made.get(key)?.table !== table) made.set(key, { table, value: make() })
  return made.get(key).value
}

const plainWords = text => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []

// Rows as questions, made of whole columns.
async function rowsOf(table, names = LISTED) {
  const shown = names.filter(name => table.has(name))
  const columns = await Promise.all(shown.map(name => table.column(name)))
  return place => question(Object.fromEntries(shown.map((name, number) => [name, columns[number][place]])))
}

const marginsOf = (table, metric) => once(table, `margins ${metric}`, async () => {
  const at = await rowsOf(table, ['target', 'scores', 'correct', 'options', 'answer'])
  return Float64Array.from({ length: table.rows }, (_, place) => margin(at(place), metric) ?? NaN)
})

// What the text filter looks at: ids, captions, options, and the model's words.
const haystack = table => once(table, 'haystack', async () => {
  const names = ['id', 'texts', 'options', 'responses'].filter(name => table.has(name))
  const columns = await Promise.all(names.map(name => table.column(name)))
  const flat = value => (Array.isArray(value) ? value.join(' ') : value && typeof value === 'object' ? Object.values(value).join(' ') : value ?? '')
  return Array.from({ length: table.rows }, (_, place) => columns.map(column => flat(column[place])).join(' ').toLowerCase())
})

// The row of another table with the same id, for each row; -1 where it has none.
const joined = (table, other) => once(table, `joined ${other.address}`, async () => {
  const [ids, others] = await Promise.all([table.column('id'), other.column('id')])
  let places
  return Int32Array.from(ids, (id, place) => {
    if (others[place] === id) return place
    places ??= new Map(others.map((name, number) => [name, number]))
    return places.get(id) ?? -1
  })
})

const ANSWERS = ['id', 'groups', 'images', 'texts', 'target', 'prediction', 'correct', 'tie', 'options', 'answer', 'choice', 'status']

async function differing(table, slugs, task) {
  const at = await rowsOf(table, ANSWERS)
  const tests = await Promise.all(slugs.map(async slug => {
    const other = await source.examples(slug, task)
    const [places, otherAt] = await Promise.all([joined(table, other), rowsOf(other, ANSWERS)])
    return place => {
      if (places[place] < 0) return false
      const [one, two] = [at(place), otherAt(places[place])]
      return asksSame(one, two) && differ(one, two)
    }
  }))
  return place => tests.some(test => test(place))
}

// The numbers of the rows that pass the filters, in the order asked for, and how many there are of each verdict.
async function find({ slug, task, metric, filters }) {
  const table = await source.examples(slug, task)
  const { text, group, right, min_margin: least, max_margin: most, with: others, sort } = filters
  const tests = []
  if (text) {
    const [texts, asked] = [await haystack(table), text.toLowerCase().split(/\s+/).filter(Boolean)]
    tests.push(place => asked.every(word => texts[place].includes(word)))
  }
  if (group) {
    const groups = await table.column('groups')
    tests.push(place => groups[place]?.includes(group))
  }
  const verdictAt = await rowsOf(table, ['correct', 'tie', 'status'])
  const verdicts = place => verdict(verdictAt(place))
  if (right) tests.push(place => right === (right === 'wrong' && ['tie', 'unread'].includes(verdicts(place)) ? 'wrong' : verdicts(place)))
  const needsMargins = least || most || sort?.endsWith('margin')
  const margins = needsMargins ? await marginsOf(table, metric) : null
  if (least) tests.push(place => margins[place] >= Number(least))
  if (most) tests.push(place => margins[place] <= Number(most))
  if (others) tests.push(await differing(table, others.split(','), task))
  const rows = []
  const counts = {}
  for (let place = 0; place < table.rows; place++) {
    if (!tests.every(test => test(place))) continue
    rows.push(place)
    const said = verdicts(place)
    counts[said] = (counts[said] ?? 0) + 1
  }
  if (sort?.endsWith('margin')) {
    const sign = sort.startsWith('-') ? -1 : 1
    const last = place => Number(Number.isNaN(margins[place]))
    rows.sort((one, other) => last(one) - last(other) || sign * (margins[one] - margins[other]) || one - other)
  }
  return { rows: Int32Array.from(rows), counts, total: table.rows }
}

// Some rows as questions: by ranges where they are near to each other, else from whole columns.
async function read({ slug, task, rows, columns = LISTED }) {
  if (!rows.length) return []
  const table = await source.examples(slug, task)
  const [first, last] = [Math.min(...rows), Math.max(...rows)]
  if (last - first < NEAR_ROWS) {
    const near = await table.slice(first, last + 1, columns)
    return Array.from(rows, place => near[place - first])
  }
  const shown = columns.filter(name => table.has(name))
  const values = await Promise.all(shown.map(name => table.column(name)))
  return Array.from(rows, place => Object.fromEntries(shown.map((name, number) => [name, values[number][place]])))
}

// Where rows of one run are in others: run -> numbers, -1 where it does not have the question.
async function places({ slug, task, rows, others }) {
  const table = await source.examples(slug, task)
  return Promise.all(others.map(async other => {
    const found = await joined(table, await source.examples(other, task))
    return Array.from(rows, place => found[place])
  }))
}

// The groups of a task with their numbers of questions.
async function groups({ slug, task }) {
  const table = await source.examples(slug, task)
  const counts = new Map()
  for (const some of await table.column('groups')) for (const group of some ?? []) counts.set(group, (counts.get(group) ?? 0) + 1)
  return [...counts].sort(([one], [other]) => one.localeCompare(other, 'en', { numeric: true }))
}

// The next row in a direction whose answer is wrong; null where there is none.
async function nextWrong({ slug, task, row }) {
  const table = await source.examples(slug, task)
  const correct = await table.column('correct')
  for (let step = 1; step <= table.rows; step++) {
    const place = (row + step) % table.rows
    if (correct[place] === false && place !== row) return place
  }
  return null
}

// Other rows with the same value of a column.
async function alike({ slug, task, row, column }) {
  const values = await (await source.examples(slug, task)).column(column)
  return values.flatMap((value, place) => (place !== row && value !== null && value === values[row] ? [place] : []))
}

// Wrong questions with a group in common, those with most words in common first. A word weighs by its rarity (IDF) among
// the questions of the group.
async function similar({ slug, task, row, metric }) {
  const table = await source.examples(slug, task)
  const at = await rowsOf(table, ['id', 'groups', 'texts', 'options', 'correct', 'tie', 'status'])
  const here = at(row)
  const members = []
  const [groupsOf, correct] = await Promise.all([table.column('groups'), table.column('correct')])
  const own = new Set(here.groups)
  for (let place = 0; place < table.rows; place++) if (!own.size || groupsOf[place].some(group => own.has(group))) members.push(place)
  const saidOf = place => new Set(plainWords(textOf(at(place))))
  const asked = saidOf(row)
  const frequency = new Map()
  const common = new Map()
  for (const place of members) {
    const shared = []
    for (const word of saidOf(place)) {
      if (!asked.has(word)) continue
      shared.push(word)
      frequency.set(word, (frequency.get(word) ?? 0) + 1)
    }
    if (place !== row && correct[place] === false) common.set(place, shared)
  }
  const weight = word => Math.log(1 + members.length / frequency.get(word))
  const rare = [...common].map(([place, shared]) => ({ place, shared: shared.filter(word => frequency.get(word) < members.length / 2), score: shared.reduce((sum, word) => sum + weight(word), 0) }))
  const best = rare.sort((one, other) => other.score - one.score || one.place - other.place).slice(0, MOST_SIMILAR)
  const margins = await marginsOf(table, metric)
  return best.map(({ place, shared }) => ({ row: place, id: at(place).id, text: textOf(at(place)), margin: margins[place], shared: shared.sort((one, other) => weight(other) - weight(one)).slice(0, 6) }))
}

// How far margins are from 0 as a rule: the unit in which margins of different runs are compared.
const usualMargin = (table, metric) => once(table, `usual ${metric}`, async () => {
  const sizes = (await marginsOf(table, metric)).filter(Number.isFinite).map(Math.abs).sort()
  return sizes[sizes.length >> 1] || 1
})

// Questions of some tasks that exactly one of two runs has right, the surest first.
async function flips({ first, second, tasks }) {
  const found = []
  const counts = []
  for (const { task, metric } of tasks) {
    const tables = await Promise.all([first, second].map(slug => source.examples(slug, task)))
    const [places, ...at] = await Promise.all([joined(...tables), ...tables.map(table => rowsOf(table))])
    const margins = await Promise.all(tables.map(table => marginsOf(table, metric)))
    const usual = await Promise.all(tables.map(table => usualMargin(table, metric)))
    let [both, neither, other, missing] = [0, 0, 0, 0]
    for (let row = 0; row < tables[0].rows; row++) {
      const place = places[row]
      if (place < 0) {
        missing += 1
        continue
      }
      const [one, two] = [at[0](row), at[1](place)]
      if (!asksSame(one, two)) {
        other += 1
        continue
      }
      if (typeof one.correct !== 'boolean' || typeof two.correct !== 'boolean') continue
      if (one.correct === two.correct) {
        if (one.correct) both += 1
        else neither += 1
        continue
      }
      const sure = Math.abs(margins[0][row]) / usual[0] + Math.abs(margins[1][place]) / usual[1]
      found.push({
        task, row, place, way: one.correct ? 'first' : 'second', id: one.id, groups: one.groups, text: textOf(one),
        first: margins[0][row], second: margins[1][place], sure: Number.isFinite(sure) ? sure : null,
      })
    }
    counts.push({ task, both, neither, other, missing: missing + Math.max(0, tables[1].rows - (tables[0].rows - missing)) })
  }
  found.sort((one, two) => (two.sure ?? 0) - (one.sure ?? 0))
  return { rows: found, counts }
}

const ACTIONS = { find, read, places, groups, nextWrong, alike, similar, flips }

onmessage = async ({ data: { number, action, given } }) => {
  try {
    postMessage({ number, value: await ACTIONS[action](given) })
  } catch (error) {
    postMessage({ number, error: error.message })
  }
}
