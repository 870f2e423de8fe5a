// What the pages show: documents and Parquet files under data/, from the server or from a bundle.

const KEPT_BYTES = 2 ** 25
const KEPT_DOCUMENTS = 40
const FOOTER_BYTES = 2 ** 17
const POLL_MILLISECONDS = 400

let library
// The reader of Parquet files, which is loaded when the first file is opened.
function parquetLibrary() {
  library ??= Promise.all([import('./vendor/hyparquet/src/index.js'), import('./vendor/fzstd/index.mjs')])
    .then(([parquet, { decompress }]) => ({ ...parquet, compressors: { ZSTD: input => decompress(input) } }))
  return library
}

// A cache, the entry used last at its end. Its entries weigh no more than its size together, except for the last one.
// Failures are not kept.
class Recent {
  constructor(size) {
    this.size = size
    this.entries = new Map()
    this.weight = 0
  }

  get(key, make, weight = 1) {
    const entry = this.entries.get(key) ?? { value: make(), weight }
    if (!this.entries.has(key)) entry.value.catch(() => this.entries.get(key) === entry && this.delete(key))
    this.delete(key)
    this.entries.set(key, entry)
    this.weight += entry.weight
    while (this.weight > this.size && this.entries.size > 1) this.delete(this.entries.keys().next().value)
    return entry.value
  }

  delete(key) {
    this.weight -= this.entries.get(key)?.weight ?? 0
    this.entries.delete(key)
  }

  clear() {
    this.entries.clear()
    this.weight = 0
  }
}

const documents = new Recent(KEPT_DOCUMENTS)
const tables = new Recent(24)
const columns = new Recent(KEPT_BYTES)
let opened = 0

const at = (...parts) => ['data', ...parts.map(part => encodeURIComponent(part))].join('/')
const after = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds))

// The error of an answer, with the server's sentence where it gives one.
async function failure(response, address) {
  let sentence
  try {
    sentence = (await response.json()).error
  } catch {
    // Other servers answer with pages of their own.
  }
  return new Error(sentence ?? `${decodeURIComponent(address)} cannot be read (status ${response.status}).`)
}

async function request(address, options) {
  try {
    return await fetch(address, options)
  } catch {
    throw new Error('The server does not answer: start it again, and reload this page.')
  }
}

// The content of an answer, which the server may make only now.
async function read(address, kind) {
  for (;;) {
    const response = await request(address)
    if (response.status === 202) {
      await response.text()
      await after(POLL_MILLISECONDS)
      continue
    }
    if (!response.ok) throw await failure(response, address)
    try {
      return await response[kind]()
    } catch {
      throw new Error(`${decodeURIComponent(address)} is not valid ${kind === 'json' ? 'JSON' : 'text'}.`)
    }
  }
}

// A bundle has a sentence in place of what could not be made.
async function readJson(address) {
  const value = await read(address, 'json')
  if (typeof value?.error === 'string') throw new Error(value.error)
  return value
}

async function readPage(address) {
  const page = new DOMParser().parseFromString(await read(address, 'text'), 'text/html')
  const sentence = page.querySelector('[role="alert"]')?.textContent
  if (sentence || !page.querySelector('main')) throw new Error(sentence ?? `${decodeURIComponent(address)} is not a report.`)
  return page
}

const document_ = (...parts) => documents.get(at(...parts), () => readJson(at(...parts)))

export const site = () => document_('site.json')
export const run = slug => document_('runs', slug, 'run.json')
export const results = slug => document_('runs', slug, 'results.json')
export const config = slug => document_('runs', slug, 'config.json')
export const drawn = slug => document_('runs', slug, 'drawn.json')
// The report on some runs as a page. A bundle has one on each run, and one on all runs of a kind, in the order of its list.
export async function report(slugs) {
  if (slugs.length > 1 && (await site()).bundle) slugs = await togetherInBundle(slugs)
  const address = at('report', `${slugs.join('~')}.html`)
  return documents.get(address, () => readPage(address))
}

async function togetherInBundle(slugs) {
  const listed = (await runs()).runs
  const { kind } = listed.find(({ slug }) => slug === slugs[0]) ?? {}
  const all = listed.filter(run => run.kind === kind && run.status === 'finished').map(({ slug }) => slug)
  if (all.length === slugs.length && all.every(slug => slugs.includes(slug))) return all
  throw new Error('These pages hold a report on each run, and one on all runs of a kind if they are two to six. They hold none on these runs: winobench view makes it.')
}

export const picture = (slug, file) => `data/runs/${encodeURIComponent(slug)}/${file.split('/').map(encodeURIComponent).join('/')}`
export const exported = (slug, name) => at('runs', slug, 'export', name)

// The paired differences of a run from a baseline. A bundle has one order of each pair.
export async function pair(baseline, other) {
  const name = `${baseline}~${other}.json`
  if (!(await site()).bundle) return document_('pairs', name)
  const [first, second] = [baseline, other].sort()
  const pair = await document_('pairs', `${first}~${second}.json`)
  return first === baseline ? pair : { ...pair, first: pair.second, second: pair.first, rows: pair.rows.map(turned) }
}

function turned(row) {
  return {
    ...row,
    first: row.second,
    second: row.first,
    difference: -row.difference,
    low: -row.high,
    high: -row.low,
    only_first: row.only_second,
    only_second: row.only_first,
  }
}

// The size of the whole file that an answer is of.
const sizeOf = (response, content) => (response.status === 206 ? Number(response.headers.get('Content-Range').split('/')[1]) : content.byteLength)

// A file by ranges, for hyparquet. The first request brings its end, with the footer. A server without ranges sends the
// whole file at once. The file's version is that of the first answer.
async function ranges(address) {
  const ask = async range => {
    const response = await request(address, { headers: { Range: `bytes=${range}` } })
    if (!response.ok) throw await failure(response, address)
    return response
  }
  const first = await ask(`-${FOOTER_BYTES}`)
  const end = await first.arrayBuffer()
  const version = first.headers.get('ETag')
  const byteLength = sizeOf(first, end)
  const begin = byteLength - end.byteLength
  return {
    byteLength,
    async slice(from, to = byteLength) {
      if (from >= begin) return end.slice(from - begin, to - begin)
      const response = await ask(`${from}-${to - 1}`)
      const content = await response.arrayBuffer()
      if (response.headers.get('ETag') !== version || sizeOf(response, content) !== byteLength) {
        tables.clear()
        throw new Error('The file has changed since the page was opened: reload the page.')
      }
      return response.status === 206 ? content : content.slice(from, to)
    },
  }
}

// A Parquet file that is read by ranges.
class Table {
  static async open(address) {
    const [parquet, plain] = await Promise.all([parquetLibrary(), ranges(address)])
    try {
      const metadata = await parquet.parquetMetadataAsync(plain, { initialFetchSize: FOOTER_BYTES })
      return new Table(address, parquet, plain, metadata)
    } catch (error) {
      if (error.message.startsWith('The file has')) throw error
      throw new Error(`${decodeURIComponent(address)} cannot be read: it is damaged, or no Parquet file.`)
    }
  }

  constructor(address, parquet, file, metadata) {
    this.address = address
    this.parquet = parquet
    this.file = file
    this.metadata = metadata
    this.rows = Number(metadata.num_rows)
    this.names = metadata.schema.filter((_, index) => index > 0 && isTop(metadata.schema, index)).map(({ name }) => name)
    this.number = ++opened
  }

  has(name) {
    return this.names.includes(name)
  }

  // All values of a column.
  column(name) {
    const bytes = this.metadata.row_groups.flatMap(group => group.columns).filter(({ meta_data: { path_in_schema: path } }) => path[0] === name)
      .reduce((sum, { meta_data: { total_uncompressed_size: size } }) => sum + Number(size), 0)
    return columns.get(`${this.number} ${name}`, async () => {
      const values = new Array(this.rows)
      await this.reading({
        columns: [name],
        onChunk: ({ columnData, rowStart }) => {
          for (let index = 0; index < columnData.length; index++) values[rowStart + index] = plainValue(columnData[index])
        },
      })
      return values
    }, bytes)
  }

  // Whether pages can be read by themselves. Tables of earlier versions cannot.
  get isIndexed() {
    return this.metadata.row_groups.every(group => group.columns.every(({ offset_index_offset: index }) => index))
  }

  // Some rows as objects, by ranges of the pages that hold them, or from whole columns where there are no ranges.
  async slice(from, to, wanted = this.names) {
    const names = wanted.filter(name => this.has(name))
    if (!this.isIndexed) {
      const values = await Promise.all(names.map(name => this.column(name)))
      const rows = Math.max(0, Math.min(to, this.rows) - from)
      return Array.from({ length: rows }, (_, index) => Object.fromEntries(names.map((name, number) => [name, values[number][from + index]])))
    }
    return (await this.objects({ columns: names, rowStart: from, rowEnd: Math.min(to, this.rows), useOffsetIndex: true })).map(plainValue)
  }

  async row(index, wanted = this.names) {
    if (!(index >= 0 && index < this.rows)) throw new Error(`The table has ${this.rows} rows, and none of number ${index}.`)
    return (await this.slice(index, index + 1, wanted))[0]
  }

  reading(options) {
    return this.guarded(this.parquet.parquetRead({ file: this.file, metadata: this.metadata, compressors: this.parquet.compressors, utf8: false, ...options }))
  }

  objects(options) {
    return this.guarded(this.parquet.parquetReadObjects({ file: this.file, metadata: this.metadata, compressors: this.parquet.compressors, utf8: false, ...options }))
  }

  async guarded(work) {
    try {
      return await work
    } catch (error) {
      if (/^The (file|server)/.test(error.message)) throw error
      throw new Error(`${decodeURIComponent(this.address)} cannot be read: ${error.message}`)
    }
  }
}

// Whether an element of a Parquet schema is a column itself, and not a part of one.
function isTop(schema, index) {
  let next = 1
  for (let number = 0; number < schema[0].num_children; number++) {
    if (next === index) return true
    next = behind(schema, next)
    if (next > index) return false
  }
  return false
}

function behind(schema, index) {
  let next = index + 1
  for (let number = 0; number < (schema[index].num_children ?? 0); number++) next = behind(schema, next)
  return next
}

// 64-bit integers as numbers, everywhere in a value.
function plainValue(value) {
  if (typeof value === 'bigint') return Number(value)
  if (Array.isArray(value)) return value.map(plainValue)
  if (value && typeof value === 'object' && !ArrayBuffer.isView(value)) {
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, plainValue(part)]))
  }
  return value
}

const open = (...parts) => tables.get(at(...parts), () => Table.open(at(...parts)))

// The columns that the pages need of a table of examples, with images and of texts.
const COLUMNS = {
  images: ['id', 'groups', 'images', 'texts', 'target', 'scores', 'correct'],
  texts: ['id', 'groups', 'texts', 'options', 'answer', 'choice', 'status', 'responses', 'correct'],
}

// The examples of a task: Table with column(name), row(number), slice(from, to).
export async function examples(slug, task) {
  const table = await open('runs', slug, 'examples', `${task}.parquet`)
  const lacking = COLUMNS[table.has('options') ? 'texts' : 'images'].find(name => !table.has(name))
  if (lacking) throw new Error(`The table of the questions of ${task} lacks the column ${lacking}: evaluate again.`)
  if (!table.rows) throw new Error(`The table of the questions of ${task} has no rows: evaluate again.`)
  return table
}

// The errors behind one row: { images, texts, samples, terms }, or null where the run has none.
export async function errors(slug, task, row) {
  if (!(await site()).bundle) return document_('runs', slug, 'errors', task, `${row}.json`)
  const table = await open('runs', slug, 'errors', `${task}.parquet`)
  const terms = await table.row(row)
  const own = terms.own
  return { images: own.length, texts: own[0].length, samples: own[0][0].length, terms }
}

// A kept image as a Blob, by the SHA-256 of its pixels; null where the run has not kept it.
export async function image(slug, task, sha256) {
  const table = await open('runs', slug, 'gallery', `${task}.parquet`)
  table.rowsOfImages ??= table.column('image').then(names => new Map(names.map((name, row) => [name, row])))
  const index = (await table.rowsOfImages).get(sha256)
  if (index === undefined) return null
  const { jpeg } = await table.row(index, ['jpeg'])
  return new Blob([jpeg], { type: 'image/jpeg' })
}

let listed = {}

// A file as a Blob.
export async function file(address) {
  const response = await request(address)
  if (!response.ok) throw await failure(response, address)
  return response.blob()
}

// All runs, as they are now. An answer that is the same as before is the same object. isFixed: it never changes.
export async function runs() {
  const answer = request(at('runs.json'), listed.version && { headers: { 'If-None-Match': listed.version } })
  const [{ bundle: isFixed }, response] = await Promise.all([site(), answer])
  if (response.status === 304) return listed.answer
  if (!response.ok) throw await failure(response, at('runs.json'))
  listed = { version: response.headers.get('ETag'), answer: { ...(await response.json()), isFixed } }
  return listed.answer
}

// The numbers of all finished runs, by task.
export const leaderboard = () => readJson(at('leaderboard.json'))

export const raw = (slug, name) => at('runs', slug, name)

// Forgets a run's documents, so that they are read again.
export function forgetRun(slug) {
  const mark = `runs/${encodeURIComponent(slug)}/`
  for (const recent of [documents, tables]) {
    for (const key of [...recent.entries.keys()]) if (key.includes(mark)) recent.delete(key)
  }
}
