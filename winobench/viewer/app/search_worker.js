// Searches whole tables away from the page, so that typing stays smooth. Asked by search.js.

import { LISTED, margin, question, textOf, verdict } from './answers.js'
import * as source from './source.js'

const NEAR_ROWS = 400
const MOST_SIMILAR = 6
const KEPT_TABLES = 2
const made = new Map()

// A value that is computed once for a table, of those used last. The tables of source.js are new where a file has changed.
function once(table, name, make) {
  const values = made.get(table) ?? new Map()
  made.delete(table)
  made.set(table, values)
  if (made.size > KEPT_TABLES) made.delete(made.keys().next().value)
  if (!values.has(name)) {
    const value = make()
    values.set(name, value)
    value.catch(() => values.delete(name))
  }
  return values.get(name)
}

const plainWords = text => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []

// Whole columns by name, those that the table has.
async function columnsOf(table, names) {
  const had = names.filter(name => table.has(name))
  const values = await Promise.all(had.map(name => table.column(name)))
  return Object.fromEntries(had.map((name, number) => [name, values[number]]))
}

const marginsOf = (table, metric) => once(table, `margins ${metric}`, async () => {
  const { scores, target, answer, correct } = await columnsOf(table, ['scores', 'target', 'answer', 'correct'])
  const asked = { scores: null, target: null, correct: null }
  return Float64Array.from(scores, (stored, place) => {
    asked.scores = answer && stored?.length ? [stored] : stored
    asked.target = (answer ?? target)[place] ?? null
    asked.correct = correct[place]
    return margin(asked, metric) ?? NaN
  })
})

const verdictsOf = table => once(table, 'verdicts', async () => {
  const { correct, tie, status } = await columnsOf(table, ['correct', 'tie', 'status'])
  return correct.map((value, place) => verdict({ correct: value, tie: tie?.[place], status: status?.[place] }))
})

// What the text filter looks at: ids, captions, options, and the model's words.
const haystack = table => once(table, 'haystack', async () => {
  const names = ['id', 'texts', 'options', 'responses'].filter(name => table.has(name))
  const columns = await Promise.all(names.map(name => table.column(name)))
  const flat = value => (Array.isArray(value) ? value.join(' ') : value && typeof value === 'object' ? Object.values(value).join(' ') : value ?? '')
  return Array.from({ length: table.rows }, (_, place) => columns.map(column => flat(column[place])).join(' ').toLowerCase())
})

// The row of another table that asks the same, for each row: the one with its id. MISSING: it has none. OTHER: its texts,
// images or target differ.
const MISSING = -1
const OTHER = -2
const ASKED = ['images', 'texts', 'target', 'options', 'answer']

const matched = (table, other) => once(table, `matched ${other.address}`, async () => {
  const [ids, others, own, theirs] = await Promise.all([table.column('id'), other.column('id'), columnsOf(table, ASKED), columnsOf(other, ASKED)])
  const names = Object.keys(own)
  let places
  return Int32Array.from(ids, (id, row) => {
    let place = row
    if (others[row] !== id) {
      places ??= new Map(others.map((name, number) => [name, number]))
      place = places.get(id)
      if (place === undefined) return MISSING
    }
    return names.every(name => theirs[name] && isSame(own[name][row], theirs[name][place])) ? place : OTHER
  })
})

function isSame(one, other) {
  if (one === other) return true
  if (!one || !other || typeof one !== 'object' || typeof other !== 'object') return false
  const keys = Object.keys(one)
  return keys.length === Object.keys(other).length && keys.every(key => isSame(one[key], other[key]))
}

// Which rows another run answers otherwise.
const differing = (table, other) => once(table, `differing ${other.address}`, async () => {
  const names = ['prediction', 'choice', 'correct']
  const [places, own, theirs] = await Promise.all([matched(table, other), columnsOf(table, names), columnsOf(other, names)])
  const chosen = ({ choice, prediction }, row) => (choice ?? prediction)[row]
  return Uint8Array.from(places, (place, row) => {
    if (place < 0) return false
    const [one, two] = [chosen(own, row), chosen(theirs, place)]
    return one !== two || (one === null && own.correct[row] !== theirs.correct[place])
  })
})

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
  const verdicts = await verdictsOf(table)
  if (right) tests.push(place => right === verdicts[place] || (right === 'wrong' && ['tie', 'unread'].includes(verdicts[place])))
  const needsMargins = least || most || sort?.endsWith('margin')
  const margins = needsMargins ? await marginsOf(table, metric) : null
  if (least) tests.push(place => margins[place] >= Number(least))
  if (most) tests.push(place => margins[place] <= Number(most))
  if (others) {
    const marks = await Promise.all(others.split(',').map(async other => differing(table, await source.examples(other, task))))
    tests.push(place => marks.some(mark => mark[place]))
  }
  const rows = []
  const counts = {}
  for (let place = 0; place < table.rows; place++) {
    if (!tests.every(test => test(place))) continue
    rows.push(place)
    const said = verdicts[place]
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
    return Array.from(rows, place => near[place - first]).filter(Boolean)
  }
  const shown = columns.filter(name => table.has(name))
  const values = await Promise.all(shown.map(name => table.column(name)))
  return Array.from(rows, place => Object.fromEntries(shown.map((name, number) => [name, values[number][place]])))
}

// Where rows of one run are in others: numbers for each run, negative where it does not have the question.
async function places({ slug, task, rows, others }) {
  const table = await source.examples(slug, task)
  return Promise.all(others.map(async other => {
    const found = await matched(table, await source.examples(other, task))
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
  const { id, groups: groupsOf, texts, options, correct } = await columnsOf(table, ['id', 'groups', 'texts', 'options', 'correct'])
  const textAt = place => textOf(question({ texts: texts[place], ...(options && { options: options[place] }) }))
  const own = new Set(groupsOf[row])
  const members = []
  for (let place = 0; place < table.rows; place++) if (!own.size || groupsOf[place].some(group => own.has(group))) members.push(place)
  const saidOf = place => new Set(plainWords(textAt(place)))
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
  return best.map(({ place, shared }) => ({ row: place, id: id[place], text: textAt(place), margin: margins[place], shared: shared.sort((one, other) => weight(other) - weight(one)).slice(0, 6) }))
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
    const names = ['id', 'groups', 'texts', 'options', 'correct']
    const [places, own, theirs] = await Promise.all([matched(...tables), columnsOf(tables[0], names), columnsOf(tables[1], names)])
    const margins = await Promise.all(tables.map(table => marginsOf(table, metric)))
    const usual = await Promise.all(tables.map(table => usualMargin(table, metric)))
    const count = { task, both: 0, neither: 0, other: 0, missing: 0 }
    for (let row = 0; row < tables[0].rows; row++) {
      const place = places[row]
      if (place === MISSING) count.missing += 1
      else if (place === OTHER) count.other += 1
      if (place < 0) continue
      const [one, two] = [own.correct[row], theirs.correct[place]]
      if (typeof one !== 'boolean' || typeof two !== 'boolean') continue
      if (one === two) {
        count[one ? 'both' : 'neither'] += 1
        continue
      }
      const sure = Math.abs(margins[0][row]) / usual[0] + Math.abs(margins[1][place]) / usual[1]
      found.push({
        task, row, place, way: one ? 'first' : 'second', id: own.id[row], groups: own.groups[row],
        text: textOf(question({ texts: own.texts[row], ...(own.options && { options: own.options[row] }) })),
        first: margins[0][row], second: margins[1][place], sure: Number.isFinite(sure) ? sure : null,
      })
    }
    count.missing += tables[1].rows - (tables[0].rows - count.missing)
    counts.push(count)
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
