// Numbers and names as winobench's reports print them (winobench.report.wording).

const MINUS = '−'
const EXACT_DIGITS = 40 // no double has a tie and more digits

// As Python rounds: ties go to the even digit.
function fixed(value, digits) {
  const exact = value.toFixed(digits + EXACT_DIGITS)
  const isTie = exact.endsWith('5'.padEnd(EXACT_DIGITS, '0'))
  const kept = exact.slice(0, -EXACT_DIGITS).replace(/\.$/, '')
  return isTie && Number(kept.at(-1)) % 2 === 0 ? kept : value.toFixed(digits)
}

const isNone = value => value === null || value === undefined || Number.isNaN(value)
const withSign = (text, sign) => (sign && !text.startsWith('-') ? `+${text}` : text)

// A proportion in percent.
export function percent(value, digits = 1, sign = false) {
  if (isNone(value)) return '–'
  const text = fixed(100 * value, digits)
  return Number(text) === 0 ? (0).toFixed(digits) : withSign(text, sign).replace('-', MINUS)
}

export function number(value, digits = 2) {
  return isNone(value) ? '–' : fixed(value, digits).replace('-', MINUS)
}

export const count = value => value.toLocaleString('en-GB')

// A p-value with the digits that it needs.
export function probability(value) {
  if (isNone(value)) return '–'
  if (value >= 0.001 || value === 0) return value ? fixed(value, 3) : '0'
  const [digit, power] = value.toExponential(0).split('e-')
  return Number(power) <= 4 ? `0.${digit.padStart(Number(power), '0')}` : `${digit}e-${power.padStart(2, '0')}`
}

// A name of the results in words.
export const words = name => name.replaceAll('_', ' ')
