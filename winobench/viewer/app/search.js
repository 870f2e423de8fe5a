// Asks the worker that searches whole tables.

import * as source from './source.js'

// What `places` says of a question that a run does not have.
export const MISSING = -1

let worker
let last = 0
const waiting = new Map()

function started() {
  const made = new Worker('search_worker.js', { type: 'module' })
  made.onmessage = ({ data: { number, value, error } }) => {
    const { resolve, reject } = waiting.get(number)
    waiting.delete(number)
    if (error === undefined) resolve(value)
    else reject(new Error(error))
  }
  made.onerror = event => {
    event.preventDefault()
    for (const { reject } of waiting.values()) reject(new Error('The search could not be started: reload the page.'))
    waiting.clear()
    worker = undefined
  }
  return made
}

function ask(action, given) {
  worker ??= started()
  const number = ++last
  return new Promise((resolve, reject) => {
    waiting.set(number, { resolve, reject })
    worker.postMessage({ number, action, given })
  })
}

// Of some searches only the last one counts: those that wait for an earlier one of the kind give way to it.
function latest(action) {
  let running = false
  let next = null
  const start = ({ given, resolve, reject }) => {
    running = true
    ask(action, given).then(resolve, reject).finally(() => {
      running = false
      const waits = next
      next = null
      if (waits) start(waits)
    })
  }
  return given => new Promise((resolve, reject) => {
    if (running) next = { given, resolve, reject }
    else start({ given, resolve, reject })
  })
}

export const find = latest('find')
export const read = given => ask('read', given)

// Neighbouring rows. The page reads them itself where the table gives parts of itself, else the worker reads whole columns.
export async function neighbours({ slug, task, from, to, columns }) {
  const table = await source.examples(slug, task)
  const end = Math.min(to, table.rows)
  if (table.isIndexed || from >= end) return table.slice(from, end, columns)
  return read({ slug, task, rows: Array.from({ length: end - from }, (_, place) => from + place), columns: columns ?? table.names })
}

export const places = given => ask('places', given)
export const groups = given => ask('groups', given)
export const nextWrong = given => ask('nextWrong', given)
export const alike = given => ask('alike', given)
export const similar = latest('similar')
export const flips = given => ask('flips', given)
