// Files that the page makes from what it shows.

export function download(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }))
  const anchor = document.createElement('a')
  anchor.href = address
  anchor.download = name
  anchor.click()
  setTimeout(() => URL.revokeObjectURL(address), 10_000)
}

// A content as three files. keys and data (a list a row) become CSV and Parquet, labels and texts LaTeX.
// left is the number of columns that LaTeX aligns to the left.
export async function save(format, name, { keys, data, labels, texts, left, caption }) {
  if (format === 'csv') download(`${name}.csv`, csv(keys, data), 'text/csv;charset=utf-8')
  else if (format === 'tex') download(`${name}.tex`, latex(labels, texts, left, caption), 'application/x-tex')
  else download(`${name}.parquet`, await parquet(keys, data), 'application/vnd.apache.parquet')
}

// The content of a table of tables.js: its columns, with their parts, and rows.
export function contentOf(columns, rows, caption) {
  const all = columns.filter(({ isForReading }) => !isForReading).flatMap(column => [column, ...Object.entries(column.parts ?? {}).map(([key, value]) => ({ key, value }))])
  return {
    keys: all.map(({ key }) => key),
    data: rows.map(row => all.map(column => valueOf(column, row))),
    labels: columns.map(({ label, key }) => (typeof label === 'string' ? label : key)),
    texts: rows.map(row => columns.map(column => textOf(column, row))),
    left: columns.findIndex(({ isNumber }) => isNumber),
    caption,
  }
}

export const valueOf = (column, row) => (column.value ? column.value(row) : row[column.key])

const textOf = (column, row) => textOfValue(column.text ? column.text(row) : valueOf(column, row))
const textOfValue = value => (value === null || value === undefined ? '' : String(value))

// As winobench.base.csv_cells: texts that a spreadsheet would compute get an apostrophe, and numbers stay.
const FORMULA = /^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/

export function csv(keys, data) {
  const cell = value => {
    const text = typeof value === 'boolean' ? (value ? 'True' : 'False') : textOfValue(value)
    const safe = typeof value === 'string' && FORMULA.test(value) && !NUMBER.test(value) ? `'${text}` : text
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
  }
  return [keys, ...data].map(row => `${row.map(cell).join(',')}\r\n`).join('')
}

const LATEX = {
  '#': '\\#', $: '\\$', '%': '\\%', '&': '\\&', _: '\\_', '{': '\\{', '}': '\\}', '\\': '\\textbackslash{}',
  '~': '\\textasciitilde{}', '^': '\\textasciicircum{}', '<': '\\textless{}', '>': '\\textgreater{}', '|': '\\textbar{}',
  '−': '$-$', '–': '--', '—': '---', '…': '\\ldots{}', '“': '``', '”': "''", '†': '\\dag{}', '‡': '\\ddag{}',
  '●': '$\\bullet$', '○': '$\\circ$', '★': '$\\star$', '✓': '$\\surd$', '✗': '$\\times$', '·': '$\\cdot$',
}

const inOneLine = text => text.replace(/[\p{C}\p{Z}]+/gu, ' ').trim()

// As winobench.base.text_tables: a tabular that needs the package booktabs.
export function latex(labels, texts, left = 1, caption = '') {
  const first = left < 0 ? labels.length : left
  const cell = (text, isNumber) => {
    const safe = [...inOneLine(text)].map(letter => LATEX[letter] ?? letter).join('')
    const signed = isNumber ? safe.replace(/(?<![\p{L}\p{N}_.])-(?=\p{Nd})/gu, '$$-$$') : safe
    return /^[[*]/.test(signed) ? `{}${signed}` : signed
  }
  const line = row => `${row.map((text, index) => cell(text, index >= first)).join(' & ')} \\\\`
  const alignment = labels.map((_, index) => (index < first ? 'l' : 'r')).join('')
  const title = inOneLine(caption ?? '')
  return [
    ...(title ? [`% ${title}`] : []),
    `\\begin{tabular}{${alignment}}`, '\\toprule', line(labels), '\\midrule', ...texts.map(line), '\\bottomrule', '\\end{tabular}', '',
  ].join('\n')
}

async function parquet(keys, data) {
  const { parquetWriteBuffer } = await import('hyparquet-writer')
  return new Blob([parquetWriteBuffer({
    columnData: keys.map((name, index) => {
      const values = data.map(row => row[index] ?? null)
      const has = kind => values.every(value => value === null || typeof value === kind)
      if (has('number')) return { name, data: values, type: 'DOUBLE', nullable: true }
      if (has('boolean')) return { name, data: values, type: 'BOOLEAN', nullable: true }
      return { name, data: values.map(value => (value === null ? null : String(value))), type: 'STRING', nullable: true }
    }),
  })])
}

// An SVG element of the page as a file, with the page's colours written into it. Kinds: "svg", "png".
export async function saveFigure(kind, element, name) {
  const text = standalone(element)
  const svg = new Blob([text], { type: 'image/svg+xml' })
  if (kind === 'svg') return download(`${name}.svg`, svg)
  const { width, height } = element.getBoundingClientRect()
  const picture = new Image()
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`
  await picture.decode()
  const canvas = Object.assign(document.createElement('canvas'), { width: Math.ceil(2 * width), height: Math.ceil(2 * height) })
  const context = canvas.getContext('2d')
  context.fillStyle = getComputedStyle(document.body).backgroundColor
  context.fillRect(0, 0, canvas.width, canvas.height)
  context.drawImage(picture, 0, 0, canvas.width, canvas.height)
  canvas.toBlob(blob => download(`${name}.png`, blob))
}

const WRITTEN = ['fill', 'stroke', 'color', 'opacity', 'font-family', 'font-size', 'font-weight', 'font-variant-numeric', 'text-anchor']

function standalone(element) {
  const copy = element.cloneNode(true)
  const [originals, copies] = [element, copy].map(root => [root, ...root.querySelectorAll('*')])
  originals.forEach((original, index) => {
    const style = getComputedStyle(original)
    for (const name of WRITTEN) copies[index].style.setProperty(name, style.getPropertyValue(name))
  })
  const { width, height } = element.getBoundingClientRect()
  copy.setAttribute('width', width)
  copy.setAttribute('height', height)
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg')
  return new XMLSerializer().serializeToString(copy)
}
