// Files that the page makes from what it shows.

export function download(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }))
  const anchor = document.createElement('a')
  anchor.href = address
  anchor.download = name
  anchor.click()
  setTimeout(() => URL.revokeObjectURL(address), 10_000)
}

// Saves a table of tables.js as "csv", "parquet" or "tex".
export async function save(format, { columns, rows, caption, name, valueOf }) {
  const values = rows.map(row => columns.map(column => valueOf(column, row)))
  const labels = columns.map(({ label, key }) => (typeof label === 'string' ? label : key))
  if (format === 'csv') download(`${name}.csv`, csv(labels, values), 'text/csv;charset=utf-8')
  else if (format === 'tex') download(`${name}.tex`, latex(labels, values, columns, caption), 'application/x-tex')
  else download(`${name}.parquet`, await parquet(columns, values), 'application/vnd.apache.parquet')
}

// Texts that a spreadsheet would compute as formulas get a quotation mark ahead of them.
function csv(labels, values) {
  const cell = value => {
    if (value === null || value === undefined) return ''
    const text = typeof value === 'string' && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value)
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
  }
  return [labels, ...values].map(row => row.map(cell).join(',')).join('\r\n') + '\r\n'
}

const ESCAPES = {
  '\\': '\\textbackslash{}', '&': '\\&', '%': '\\%', $: '\\$', '#': '\\#', _: '\\_', '{': '\\{', '}': '\\}',
  '~': '\\textasciitilde{}', '^': '\\textasciicircum{}', '−': '$-$', '–': '--',
}

function latex(labels, values, columns, caption) {
  const cell = value => (value === null || value === undefined ? '' : String(value)).replace(/[\\&%$#_{}~^−–]/g, letter => ESCAPES[letter]).replace(/\s+/g, ' ')
  const line = row => `${row.map(cell).join(' & ')} \\\\`
  return [
    ...(caption ? [`% ${caption.replace(/\s+/g, ' ')}`] : []),
    `\\begin{tabular}{${columns.map(({ isNumber }) => (isNumber ? 'r' : 'l')).join('')}}`,
    '\\toprule', line(labels), '\\midrule', ...values.map(line), '\\bottomrule', '\\end{tabular}', '',
  ].join('\n')
}

async function parquet(columns, values) {
  const { parquetWriteBuffer } = await import('hyparquet-writer')
  return new Blob([parquetWriteBuffer({
    columnData: columns.map(({ key }, place) => {
      const data = values.map(row => row[place] ?? null)
      const isNumber = data.every(value => value === null || typeof value === 'number')
      const isBoolean = data.every(value => value === null || typeof value === 'boolean')
      const type = isNumber ? 'DOUBLE' : isBoolean ? 'BOOLEAN' : 'STRING'
      return { name: key, data: type === 'STRING' ? data.map(value => (value === null ? null : String(value))) : data, type, nullable: true }
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
  originals.forEach((original, place) => {
    const style = getComputedStyle(original)
    for (const name of WRITTEN) copies[place].style.setProperty(name, style.getPropertyValue(name))
  })
  const { width, height } = element.getBoundingClientRect()
  copy.setAttribute('width', width)
  copy.setAttribute('height', height)
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg')
  return new XMLSerializer().serializeToString(copy)
}
